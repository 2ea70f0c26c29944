// Plain kernels behind block_matmul.h: any block, any shape, any architecture. Arguments are checked there.
#pragma once

#include "kernels/block/block_matmul.h"

namespace filigree::plain {

void block_forward(const BlockForwardArgs& args, CUstream_st* stream);
void block_input_gradient(const BlockInputGradientArgs& args, CUstream_st* stream);
void block_weight_gradient(const BlockWeightGradientArgs& args, CUstream_st* stream);

}  // namespace filigree::plain
