// The communicator of a process that a launcher started as one of several ranks.
#pragma once

#include <memory>

#include "comm/communicator.h"
#include "comm/launch.h"
#include "io/config.h"

namespace filigree {

// Joins the other ranks: over MPI where config.run.device is the processor, with NCCL on GPUs. Throws UserError where
// this launch, device and build do not go together. `version`: the program's. launch.size > 1.
std::unique_ptr<Communicator> join_ranks(const Launch& launch, const Config& config, const std::string& version);

// The threads that a rank should have where nobody says it: its share of this machine's processors, 0 (all that the
// process may use) where the launcher has shared them out already.
int threads_of_rank(int ranks_here);

}  // namespace filigree
