// Kernels that the block bench needs around the products: random data, dense copies of block matrices, comparison.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "core/dtype.h"
#include "kernels/block/block_format.h"

namespace filigree::bench {

// count bf16 numbers, uniform in [-1, 1), keyed by seed and index.
void fill_random(void* to, std::int64_t count, std::uint32_t seed, cudaStream_t stream);

// dense (N, K) = the block matrix, bf16; absent blocks become zeros.
void expand_blocks(void* dense, const void* values, const BlockGrid& grid, const DeviceBlockLists& lists,
                   cudaStream_t stream);
// values = the kept blocks of dense (N, K), both of `dtype`, bf16 or fp32; zeros where a block hangs over.
void gather_blocks(void* values, const void* dense, DType dtype, const BlockGrid& grid, const DeviceBlockLists& lists,
                   cudaStream_t stream);

// Norm of a - b over the norm of b, both of `dtype`, bf16 or fp32. Waits for the stream.
double relative_error(const void* a, const void* b, DType dtype, std::int64_t count, cudaStream_t stream);

}  // namespace filigree::bench
