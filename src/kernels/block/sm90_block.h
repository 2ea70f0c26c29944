// Hopper's kernels behind block_matmul.h. Arguments are checked there.
#pragma once

#include "kernels/block/block_matmul.h"

namespace filigree::sm90 {

void block_forward(const BlockForwardArgs& args, const BlockPlan& plan, CUstream_st* stream);
void block_input_gradient(const BlockInputGradientArgs& args, const BlockPlan& plan, CUstream_st* stream);
void block_weight_gradient(const BlockWeightGradientArgs& args, const BlockPlan& plan, CUstream_st* stream);

// Clusters that the current GPU runs at the same time.
int active_clusters();

}  // namespace filigree::sm90
