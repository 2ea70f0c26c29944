// The decoding kernel behind block_matmul.h: any block and shape, up to kDecodeTokens tokens. Arguments are checked
// there.
#pragma once

#include "kernels/block/block_matmul.h"

namespace filigree::decode {

void block_forward(const BlockForwardArgs& args, const BlockPlan& plan, CUstream_st* stream);

}  // namespace filigree::decode
