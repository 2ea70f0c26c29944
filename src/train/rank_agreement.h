// What the ranks of a run have to have alike before they train: the program, the configuration, the kernels.
#pragma once

#include <map>
#include <string>

#include "comm/communicator.h"
#include "io/config.h"
#include "sparsity/plan.h"

namespace filigree {

// Throws UserError with what differs from rank 0: the program's version, the resolved configuration, the kind of
// device. Called by all ranks.
void require_equal_ranks(Communicator& communicator, const Config& config, const Device& device);

// Rank 0's choices of kernels, on every rank.
std::map<std::string, PlanEntry> shared_plans(Communicator& communicator,
                                              const std::map<std::string, PlanEntry>& entries);

}  // namespace filigree
