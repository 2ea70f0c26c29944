// The decoding kernels with other numbers of stages than the products use, or with and without clusters for any
// number of tokens: what filigree_cuda_bench compares.
#pragma once

#include <span>

#include "kernels/block/block_matmul.h"
#include "kernels/nm/nm_matmul.h"

namespace filigree::bench {

struct DecodeVariant {
  const char* name;
  void (*multiply_24)(const NmMatmulArgs& args, CUstream_st* stream);
  void (*multiply_blocks)(const BlockForwardArgs& args, CUstream_st* stream);
};
std::span<const DecodeVariant> decode_variants();

}  // namespace filigree::bench
