#include "kernels/block/block_format.h"

#include <gmock/gmock.h>

#include <set>

#include "block_cases.h"

namespace filigree::testing {
namespace {

TEST(BlockLists, TransposedListsAreTheInverse) {
  const BlockGrid grid{.rows = 1000, .columns = 700, .block = {64, 32}};
  const auto mask = ragged_mask(grid, 0.3, 1);
  const BlockLists lists = make_block_lists(grid, mask);
  std::set<std::int32_t> seen;
  std::int32_t fullest = 0;
  for (std::int64_t column = 0; column < grid.block_columns(); ++column) {
    const auto c = static_cast<std::size_t>(column);
    fullest = std::max(fullest, lists.column_start[c + 1] - lists.column_start[c]);
    for (std::int32_t i = lists.column_start[c]; i < lists.column_start[c + 1]; ++i) {
      const BlockEntry entry = lists.column_entries[static_cast<std::size_t>(i)];
      if (i > lists.column_start[c]) {
        EXPECT_GT(entry.other, lists.column_entries[static_cast<std::size_t>(i) - 1].other);
      }
      EXPECT_EQ(lists.row_entries[static_cast<std::size_t>(entry.block)].other, column);
      EXPECT_GE(entry.block, lists.row_start[static_cast<std::size_t>(entry.other)]);
      EXPECT_LT(entry.block, lists.row_start[static_cast<std::size_t>(entry.other) + 1]);
      EXPECT_TRUE(mask[static_cast<std::size_t>(entry.other * grid.block_columns() + column)]);
      seen.insert(entry.block);
    }
  }
  EXPECT_EQ(static_cast<std::int64_t>(seen.size()), lists.blocks());
  EXPECT_EQ(lists.blocks(), std::count(mask.begin(), mask.end(), 1));
  EXPECT_EQ(lists.most_in_column, fullest);
}

TEST(BlockLists, GradientTilesCoverEveryBlockOnce) {
  const BlockGrid grid{.rows = 640, .columns = 128 * 41};
  const BlockLists lists = make_block_lists(grid, ragged_mask(grid, 0.6, 2));
  std::vector<int> covered(static_cast<std::size_t>(lists.blocks()), 0);
  for (const BlockGradientTile& tile : lists.gradient_tiles) {
    EXPECT_GE(tile.count, 1);
    EXPECT_LE(tile.count, kGradientTileBlocks);
    EXPECT_GE(tile.first, lists.row_start[static_cast<std::size_t>(tile.row)]);
    EXPECT_LE(tile.first + tile.count, lists.row_start[static_cast<std::size_t>(tile.row) + 1]);
    for (std::int32_t i = tile.first; i < tile.first + tile.count; ++i) ++covered[static_cast<std::size_t>(i)];
  }
  EXPECT_THAT(covered, ::testing::Each(1));
}

TEST(BlockLists, AnEmptyRowIsRefused) {
  const BlockGrid grid{.rows = 256, .columns = 256};
  try {
    make_block_lists(grid, {1, 0, 0, 0});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("block row 1 keeps no block"));
  }
}

TEST(BalancedBlockMask, CountsAreEqual) {
  for (const auto& [rows, columns, density] : {std::tuple{4096, 4096, 0.5}, {5120, 1600, 0.3}, {1024, 14336, 0.125}}) {
    const BlockGrid grid{.rows = rows, .columns = columns};
    const auto mask = balanced_block_mask(grid, density, 3, 4);
    const BlockLists lists = make_block_lists(grid, mask);
    const auto keep = static_cast<std::int32_t>(std::llround(density * static_cast<double>(grid.block_columns())));
    for (std::size_t row = 0; row + 1 < lists.row_start.size(); ++row)
      EXPECT_EQ(lists.row_start[row + 1] - lists.row_start[row], keep);
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

}  // namespace
}  // namespace filigree::testing
