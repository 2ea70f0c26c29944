// Masks and random block matrices for the tests of this folder.
#pragma once

#include <string>
#include <vector>

#include "core/random.h"
#include "kernels/block/block_reference.h"
#include "support.h"

namespace filigree::testing {

// Every block with this probability, and at least one a row: rows and columns of very different counts, some columns
// empty.
inline std::vector<std::uint8_t> ragged_mask(const BlockGrid& grid, double density, std::uint32_t stream) {
  const Random random(7, RandomPurpose::test, stream);
  const std::int64_t rows = grid.block_rows(), columns = grid.block_columns();
  std::vector<std::uint8_t> mask(static_cast<std::size_t>(rows * columns), 0);
  for (std::size_t i = 0; i < mask.size(); ++i) mask[i] = random.uniform(i) < density;
  for (std::int64_t row = 0; row < rows; ++row)
    mask[static_cast<std::size_t>(row * columns + random.below(static_cast<std::uint64_t>(row), 1u << 20) % columns)] =
        1;
  return mask;
}

// Uniform in [-1, 1), rounded to bf16: no product is larger than 1.
inline std::vector<double> uniform_bf16(std::int64_t count, std::uint32_t stream) {
  const Random random(42, RandomPurpose::test, stream);
  std::vector<double> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(bf16(2.0f * random.uniform(i) - 1.0f));
  return values;
}

// Random values inside W; where a block hangs over, zeros.
inline BlockReference random_matrix(const BlockGrid& grid, const std::vector<std::uint8_t>& mask,
                                    std::uint32_t stream) {
  BlockReference matrix{grid, make_block_lists(grid, mask), {}};
  matrix.values = uniform_bf16(matrix.lists.blocks() * grid.block_elements(), stream);
  for (std::int64_t line = 0; line < grid.block_rows(); ++line)
    for (std::int32_t i = matrix.lists.row_start[static_cast<std::size_t>(line)];
         i < matrix.lists.row_start[static_cast<std::size_t>(line) + 1]; ++i)
      for (std::int64_t at = 0; at < grid.block_elements(); ++at) {
        const std::int64_t n = line * grid.block.rows + at / grid.block.columns;
        const std::int64_t k =
            matrix.lists.row_entries[static_cast<std::size_t>(i)].other * std::int64_t{grid.block.columns} +
            at % grid.block.columns;
        if (n >= grid.rows || k >= grid.columns)
          matrix.values[static_cast<std::size_t>(i * grid.block_elements() + at)] = 0.0;
      }
  return matrix;
}

}  // namespace filigree::testing
