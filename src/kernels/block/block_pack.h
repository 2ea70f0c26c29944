// Between block-sparse and dense storage (format: block_format.h). Exact; on a GPU by way of the host's memory: there
// they serve set-up and loading alone.
#pragma once

#include "kernels/block/block_products.h"

namespace filigree {

// values = kept blocks of dense (N, K) [+ values when `accumulate`], each fp32 or bf16, rounded to nearest even;
// entries outside W become 0 [stay].
void block_compress(Device& device, const BlockMatrix& out, const Tensor& dense, bool accumulate = false);
// dense (N, K) = values where blocks are kept, +0 elsewhere, in dense's own type.
void block_expand(Device& device, const Tensor& dense, const BlockMatrix& in);

}  // namespace filigree
