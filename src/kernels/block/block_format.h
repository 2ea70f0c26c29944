// Block-sparse matrices: whole blocks of a weight W (N, K) are kept or absent.
//
// A grid cuts W into blocks of `block.rows` outputs x `block.columns` inputs; at the right and lower edge a block may
// hang over W, and is stored whole: its entries outside W are zero and stay zero. The matrix is stored as
//   values   (blocks, block.rows, block.columns): the kept blocks, row by row of blocks, each row's from left to right
//   lists    which blocks those are, by block row and by block column (below); 16 bytes a block
// The values' order is a checkpoint's canonical form; the lists are rebuilt from the mask.
#pragma once

#include <cstdint>
#include <vector>

#include "core/block_shape.h"

namespace filigree {

struct BlockGrid {
  std::int64_t rows = 0;     // N
  std::int64_t columns = 0;  // K
  BlockShape block = {};

  constexpr std::int64_t block_rows() const { return (rows + block.rows - 1) / block.rows; }
  constexpr std::int64_t block_columns() const { return (columns + block.columns - 1) / block.columns; }
  constexpr std::int64_t block_elements() const { return std::int64_t{block.rows} * block.columns; }
};

// One kept block, seen from its block row or from its block column.
struct BlockEntry {
  std::int32_t other;  // the block column in a row's list, the block row in a column's list
  std::int32_t block;  // its place in `values`
};

// What one cluster of the weight gradient's kernel computes at once: up to kGradientTileBlocks neighbours in the list
// of one block row, which share that row's output gradients.
inline constexpr int kGradientTileBlocks = 4;
struct BlockGradientTile {
  std::int32_t row;    // block row
  std::int32_t first;  // index into row_entries; also the first block's place in `values`
  std::int32_t count;  // 1 .. kGradientTileBlocks
};

// The lists, in host memory. Entries ascend in `other`; a column's list may be empty, a row's may not.
struct BlockLists {
  std::vector<std::int32_t> row_start;     // (block_rows + 1): row r owns row_entries[row_start[r], row_start[r + 1])
  std::vector<BlockEntry> row_entries;     // (blocks); entry i has block == i
  std::vector<std::int32_t> column_start;  // (block_columns + 1)
  std::vector<BlockEntry> column_entries;  // (blocks): the transposed lists
  std::vector<BlockGradientTile> gradient_tiles;  // in the order in which they are computed
  std::int32_t most_in_row = 0;                   // blocks of the fullest row
  std::int32_t most_in_column = 0;

  std::int64_t blocks() const { return static_cast<std::int64_t>(row_entries.size()); }
};

// Builds the lists of a mask (block_rows, block_columns), row-major, non-zero = kept. Throws Error when a row is empty.
BlockLists make_block_lists(const BlockGrid& grid, const std::vector<std::uint8_t>& mask);

// The same lists in device memory, as kernels take them.
struct DeviceBlockLists {
  const std::int32_t* row_start = nullptr;            // (block_rows + 1)
  const BlockEntry* row_entries = nullptr;            // (blocks)
  const std::int32_t* column_start = nullptr;         // (block_columns + 1)
  const BlockEntry* column_entries = nullptr;         // (blocks)
  const BlockGradientTile* gradient_tiles = nullptr;  // (gradient_tile_count)
  std::int64_t blocks = 0;
  std::int64_t gradient_tile_count = 0;
};

}  // namespace filigree
