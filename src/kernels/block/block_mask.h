// Which blocks of a weight are kept: masks (block_rows, block_columns), row-major, non-zero = kept. Host code, run once
// a layer.
//
// Every mask keeps the same number of blocks in every block row, kept_in_a_row: so the size of a layer is known before
// its mask, all rows cost the same, and no output is cut off from the input. Equal seeds and streams (one a layer) give
// equal masks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/block/block_format.h"

namespace filigree {

// density x block columns, rounded, at least 1. 0 < density <= 1.
std::int64_t kept_in_a_row(const BlockGrid& grid, double density);

// Random, with the same number of kept blocks in every block column or one more: every input reaches as many outputs,
// and dX has even work, too.
std::vector<std::uint8_t> balanced_block_mask(const BlockGrid& grid, double density, std::uint64_t seed,
                                              std::uint32_t stream);
// Random in each row; a column may keep many blocks or none.
std::vector<std::uint8_t> random_block_mask(const BlockGrid& grid, double density, std::uint64_t seed,
                                            std::uint32_t stream);
// Half of each row (rounded up) in a band around the diagonal of the grid, the other half random in the rest of the
// row.
std::vector<std::uint8_t> diagonal_band_block_mask(const BlockGrid& grid, double density, std::uint64_t seed,
                                                   std::uint32_t stream);
// The blocks of each row with the largest norm in `dense` (N, K), fp32; equal norms: the left one.
std::vector<std::uint8_t> magnitude_block_mask(const BlockGrid& grid, double density, const float* dense);

}  // namespace filigree
