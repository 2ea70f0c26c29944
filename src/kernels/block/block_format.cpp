// Lists of block-sparse matrices: host code, run once a layer.
#include "kernels/block/block_format.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "core/error.h"

namespace filigree {

namespace {

// Tiles in patches of `kPatch` tiles of a row x all rows: clusters that run at the same time then read neighbouring
// columns of x, and the output gradients of a few rows, so that both stay in the L2 cache.
constexpr std::int32_t kPatch = 4;

std::vector<BlockGradientTile> make_gradient_tiles(const BlockLists& lists, std::int64_t rows) {
  std::vector<BlockGradientTile> tiles;
  for (std::int32_t begin = 0; begin < lists.most_in_row; begin += kPatch * kGradientTileBlocks) {
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int32_t first = lists.row_start[static_cast<std::size_t>(row)];
      const std::int32_t count = lists.row_start[static_cast<std::size_t>(row) + 1] - first;
      const std::int32_t end = std::min(count, begin + kPatch * kGradientTileBlocks);
      for (std::int32_t at = begin; at < end; at += kGradientTileBlocks)
        tiles.push_back({static_cast<std::int32_t>(row), first + at, std::min(kGradientTileBlocks, end - at)});
    }
  }
  return tiles;
}

}  // namespace

BlockLists make_block_lists(const BlockGrid& grid, const std::vector<std::uint8_t>& mask) {
  const std::int64_t rows = grid.block_rows(), columns = grid.block_columns();
  require(static_cast<std::int64_t>(mask.size()) == rows * columns, "block mask has another size than the grid");
  BlockLists lists;
  lists.row_start.push_back(0);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < columns; ++column)
      if (mask[static_cast<std::size_t>(row * columns + column)])
        lists.row_entries.push_back({static_cast<std::int32_t>(column), static_cast<std::int32_t>(lists.blocks())});
    const auto count = static_cast<std::int32_t>(lists.blocks()) - lists.row_start.back();
    require(count > 0,
            "block row " + std::to_string(row) + " keeps no block: its outputs would not depend on the input");
    lists.most_in_row = std::max(lists.most_in_row, count);
    lists.row_start.push_back(static_cast<std::int32_t>(lists.blocks()));
  }

  lists.column_start.assign(static_cast<std::size_t>(columns) + 1, 0);
  for (const BlockEntry& entry : lists.row_entries) ++lists.column_start[static_cast<std::size_t>(entry.other) + 1];
  lists.most_in_column = *std::max_element(lists.column_start.begin(), lists.column_start.end());
  std::partial_sum(lists.column_start.begin(), lists.column_start.end(), lists.column_start.begin());
  lists.column_entries.resize(lists.row_entries.size());
  std::vector<std::int32_t> next(lists.column_start.begin(), lists.column_start.end() - 1);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int32_t i = lists.row_start[static_cast<std::size_t>(row)];
         i < lists.row_start[static_cast<std::size_t>(row) + 1]; ++i) {
      const auto column = static_cast<std::size_t>(lists.row_entries[static_cast<std::size_t>(i)].other);
      lists.column_entries[static_cast<std::size_t>(next[column]++)] = {static_cast<std::int32_t>(row), i};
    }
  }

  lists.gradient_tiles = make_gradient_tiles(lists, rows);
  return lists;
}

}  // namespace filigree
