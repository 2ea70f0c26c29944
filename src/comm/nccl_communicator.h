// Ranks that are processes with a GPU each: arrays over NCCL, values of the host over MPI or TCP.
#pragma once

#include <memory>

#include "comm/communicator.h"
#include "comm/control.h"

namespace filigree {

// Why NCCL cannot be used in this build or on this machine; "" where it can.
std::string nccl_refusal();

// NCCL itself starts with the first collective of an array, on the GPU of that call's device. Where a rank is lost
// while the host waits for the GPU, the process ends with exit code 1.
std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Control> control);

}  // namespace filigree
