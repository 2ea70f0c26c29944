// Descriptors of two-dimensional bf16 arrays for Hopper's bulk tensor copies, and launches with clusters.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <source_location>

namespace filigree::sm90 {

// A row-major array (rows, columns) that is copied in boxes of 64 columns x `box_rows` rows, with 128-byte swizzle. The
// address is 16-byte aligned and columns a multiple of 8.
CUtensorMap tensor_map(const void* data, std::int64_t rows, std::int64_t columns, int box_rows);

}  // namespace filigree::sm90
