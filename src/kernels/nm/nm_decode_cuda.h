// N:M products of a few tokens on a GPU, bound by reading the weights. Called by nm_matmul_cuda.cpp alone.
#pragma once

#include "kernels/nm/nm_matmul.h"

namespace filigree::cuda {

// Whether nm_decode computes a product: 1 to 16 tokens, 2:4 in bf16, inputs a multiple of 8.
bool takes_nm_decode(const NmMatmulArgs& args);
// As nm_matmul (nm_matmul.h); reads values and mask, no metadata. Reproducible: a sum's order depends on the shape and
// T alone.
void nm_decode(Device& device, const NmMatmulArgs& args);

}  // namespace filigree::cuda
