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

}  // namespace
}  // namespace filigree::testing
