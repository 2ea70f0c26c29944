// Values of the host between ranks that know an address alone (torchrun, srun without PMIx): every rank is connected to
// the first, which collects and hands out. It carries NCCL's id, a few numbers a step, and the ranks' words (vigil.h);
// never an array.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "comm/control.h"
#include "comm/launch.h"

namespace filigree {

// Connects the ranks; waits for each other until the timeout. `version`: what both ends of a connection must have
// alike. Throws UserError where nobody answers at the address, or it is somebody else.
std::unique_ptr<Control> make_tcp_control(const Launch& launch, std::chrono::duration<double> timeout,
                                          const std::string& version);

}  // namespace filigree
