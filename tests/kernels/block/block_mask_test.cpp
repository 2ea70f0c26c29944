#include "kernels/block/block_mask.h"

#include <gmock/gmock.h>

#include "block_cases.h"

namespace filigree::testing {
namespace {

using Mask = std::vector<std::uint8_t>;

bool kept(const Mask& mask, const BlockGrid& grid, std::int64_t row, std::int64_t column) {
  return mask[static_cast<std::size_t>(row * grid.block_columns() + column)] != 0;
}

void expect_equal_rows(const Mask& mask, const BlockGrid& grid, double density) {
  const BlockLists lists = make_block_lists(grid, mask);
  for (std::size_t row = 0; row + 1 < lists.row_start.size(); ++row)
    EXPECT_EQ(lists.row_start[row + 1] - lists.row_start[row], kept_in_a_row(grid, density)) << "row " << row;
}

TEST(BalancedBlockMask, CountsAreEqual) {
  for (const auto& [rows, columns, density] : {std::tuple{4096, 4096, 0.5}, {5120, 1600, 0.3}, {1024, 14336, 0.125}}) {
    const BlockGrid grid{.rows = rows, .columns = columns};
    const auto mask = balanced_block_mask(grid, density, 3, 4);
    const BlockLists lists = make_block_lists(grid, mask);
    expect_equal_rows(mask, grid, density);
    for (std::size_t column = 0; column + 1 < lists.column_start.size(); ++column)
      EXPECT_GE(lists.column_start[column + 1] - lists.column_start[column], lists.most_in_column - 1);
  }
}

TEST(BalancedBlockMask, IsRandomAndRepeatable) {
  const BlockGrid grid{.rows = 8192, .columns = 8192};
  const auto mask = balanced_block_mask(grid, 0.5, 3, 4);
  EXPECT_EQ(mask, balanced_block_mask(grid, 0.5, 3, 4));
  EXPECT_NE(mask, balanced_block_mask(grid, 0.5, 3, 5));
  EXPECT_NE(mask, balanced_block_mask(grid, 0.5, 4, 4));
  // Neighbours in a row are kept together as often as chance has it: 64 x 63 pairs, a quarter of them, five deviations.
  int together = 0;
  for (std::size_t i = 0; i + 1 < mask.size(); ++i)
    if ((i + 1) % 64 != 0) together += mask[i] && mask[i + 1];
  EXPECT_NEAR(together, 64 * 63 / 4, 5 * std::sqrt(64 * 63 * 3.0 / 16));
}

TEST(BalancedBlockMask, KeepsOneBlockARowAtLeast) {
  const BlockGrid grid{.rows = 1024, .columns = 1024};
  EXPECT_EQ(make_block_lists(grid, balanced_block_mask(grid, 0.01, 1, 0)).blocks(), 8);
  EXPECT_EQ(make_block_lists(grid, balanced_block_mask(grid, 1.0, 1, 0)).blocks(), 64);
  EXPECT_THROW(balanced_block_mask(grid, 0.0, 1, 0), Error);
}

TEST(BlockMasks, KeepTheirShareOfEveryRow) {
  for (const BlockGrid& grid : {BlockGrid{.rows = 768, .columns = 3072, .block = {16, 16}},
                                BlockGrid{.rows = 100, .columns = 70, .block = {16, 32}},
                                BlockGrid{.rows = 64, .columns = 48, .block = {64, 48}}}) {
    const std::vector<double> numbers = uniform_bf16(grid.rows * grid.columns, 1);
    const std::vector<float> dense(numbers.begin(), numbers.end());
    for (const double density : {1.0, 0.7, 0.5, 0.25, 0.001}) {
      expect_equal_rows(balanced_block_mask(grid, density, 1, 2), grid, density);
      expect_equal_rows(random_block_mask(grid, density, 1, 2), grid, density);
      expect_equal_rows(diagonal_band_block_mask(grid, density, 1, 2), grid, density);
      expect_equal_rows(magnitude_block_mask(grid, density, dense.data()), grid, density);
    }
  }
}

TEST(BlockMasks, DifferByLayerAndSeedAndRepeat) {
  const BlockGrid grid{.rows = 512, .columns = 512, .block = {16, 16}};
  for (const auto mask : {random_block_mask, diagonal_band_block_mask}) {
    EXPECT_EQ(mask(grid, 0.5, 1, 2), mask(grid, 0.5, 1, 2));
    EXPECT_NE(mask(grid, 0.5, 1, 2), mask(grid, 0.5, 1, 3));
    EXPECT_NE(mask(grid, 0.5, 1, 2), mask(grid, 0.5, 2, 2));
  }
}

TEST(RandomBlockMask, IsNotBalancedByColumn) {
  const BlockGrid grid{.rows = 1024, .columns = 1024, .block = {16, 16}};
  const BlockLists lists = make_block_lists(grid, random_block_mask(grid, 0.5, 1, 2));
  EXPECT_GT(lists.most_in_column, 36);  // 32 on average, a standard deviation of 4, 64 columns
}

TEST(DiagonalBandBlockMask, HoldsTheDiagonal) {
  for (const auto& [rows, columns] : {std::pair{512, 512}, {1024, 256}, {256, 1024}}) {
    const BlockGrid grid{.rows = rows, .columns = columns, .block = {16, 16}};
    const Mask mask = diagonal_band_block_mask(grid, 0.25, 1, 2);
    for (std::int64_t row = 0; row < grid.block_rows(); ++row)
      EXPECT_TRUE(kept(mask, grid, row, (2 * row + 1) * grid.block_columns() / (2 * grid.block_rows())));
  }
}

TEST(MagnitudeBlockMask, KeepsTheLargestNormsOfEachRow) {
  const BlockGrid grid{.rows = 7, .columns = 12, .block = {4, 5}};  // 2 x 3 blocks; the last ones hang over
  std::vector<float> dense(7 * 12, 0.0f);
  dense[0 * 12 + 11] = 3.0f;  // row of blocks 0: norms 2, 2, 3
  dense[1 * 12 + 4] = -2.0f;
  dense[3 * 12 + 5] = 2.0f;
  dense[6 * 12 + 7] = 1.0f;  // row of blocks 1: norms 0, 1, 0.5
  dense[4 * 12 + 10] = -0.5f;
  EXPECT_EQ(magnitude_block_mask(grid, 0.34, dense.data()), (Mask{0, 0, 1, 0, 1, 0}));
  EXPECT_EQ(magnitude_block_mask(grid, 0.67, dense.data()), (Mask{1, 0, 1, 0, 1, 1})) << "equal norms: the left one";
}

}  // namespace
}  // namespace filigree::testing
