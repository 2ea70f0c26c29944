// Between block-sparse and dense storage (format: block_format.h). Exact and independent of the thread count.
#pragma once

#include "kernels/block/block_products.h"

namespace filigree {

// values = kept blocks of dense (N, K) [+ values when `accumulate`], each fp32 or bf16, rounded to nearest even;
// entries outside W become 0 [stay].
void block_compress(Device& device, const BlockMatrix& out, const Tensor& dense, bool accumulate = false);
// dense (N, K) = values where blocks are kept, +0 elsewhere, in dense's own type.
void block_expand(Device& device, const Tensor& dense, const BlockMatrix& in);

namespace cuda {  // the same on a GPU: block_pack_cuda.cu; called by the functions above
void block_compress(Device& device, const BlockMatrix& out, const Tensor& dense, bool accumulate);
void block_expand(Device& device, const Tensor& dense, const BlockMatrix& in);
}  // namespace cuda

}  // namespace filigree
