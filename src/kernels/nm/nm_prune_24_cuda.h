// SLoPe's second pruning of 2:4 matrices in bf16 on a GPU (nm_prune_24_cuda.cu): nm_double_prune with `reselect`.
#pragma once

#include "kernels/nm/nm_pack.h"

namespace filigree::cuda {

// Whether the matrices and rows suit: 2:4 in bf16, extents and rows multiples of 64.
bool takes_prune_24(const NmMatrix& out, const NmMatrix& forward, std::int64_t row_begin, std::int64_t row_end);
void prune_24(Device& device, const NmMatrix& out, const NmMatrix& forward, std::int64_t row_begin,
              std::int64_t row_end);

}  // namespace filigree::cuda
