// The forward product and dX as the CPU's driver sees them (block_lines_cpu.cpp), and their packed weights.
//
// Both are products of lines of blocks: block rows whose lists name block columns, or for dX the other way round.
#pragma once

#include <cstddef>

#include "kernels/block/block_cpu_plan.h"
#include "kernels/block/block_products.h"

namespace filigree::cpu {

struct BlockLines {
  Tensor y;     // (T, results)
  Tensor x;     // (T, operands)
  Tensor bias;  // (results), optional
  const void* values;
  const std::int32_t* start;
  const BlockEntry* entries;
  std::int64_t block_elements;
  std::int64_t block_columns;
  bool transposed;  // dX: results are a block's columns
  BlockLinesShape shape;

  std::int64_t results() const { return y.shape[1]; }
  std::int64_t operands() const { return x.shape[1]; }
};

// The entries of one line that name one block of operand lines, and where their packed weights begin.
struct BlockLinePiece {
  std::int64_t weights;
  std::int32_t first, count;

  std::int32_t end() const { return first + count; }
};

// All kept weights in the order in which tiles read them: the tile's rows side by side for each step of the reduction.
class PackedBlockLines {
 public:
  PackedBlockLines(const BlockLines& lines, const BlockLinesPlan& plan, const NmTarget& target)
      : lines_(lines),
        plan_(plan),
        rows_(block_tile_rows(target.vectors)),
        blocks_((lines.shape.others + plan.other_block - 1) / plan.other_block) {
    unit_ = plan.groups * plan.words * rows_;
    piece_bytes_ = (lines.shape.lines * blocks_ * static_cast<std::int64_t>(sizeof(BlockLinePiece)) + 63) / 64 * 64;
  }

  std::int64_t bytes() const { return piece_bytes_ + lines_.start[lines_.shape.lines] * unit_ * 4; }
  std::int64_t blocks() const { return blocks_; }  // of operand lines

  const BlockLinePiece& piece(std::int64_t block, std::int64_t line) const {
    return pieces_[block * lines_.shape.lines + line];
  }
  const std::byte* weights(const BlockLinePiece& piece, std::int64_t group) const {
    return weights_ + (piece.weights + group * piece.count * plan_.words * rows_) * 4;
  }

  // `memory` has bytes() bytes, 64-byte aligned; all threads work.
  void pack(std::byte* memory);

 private:
  void cut();
  template <typename T, typename Word>
  void pack_line(std::int64_t line) const;
  template <bool kTransposed, typename T, typename Word>
  void pack_line_as(std::int64_t line) const;

  const BlockLines& lines_;
  const BlockLinesPlan& plan_;
  std::int64_t rows_;      // of a tile
  std::int64_t blocks_;    // of operand lines
  std::int64_t unit_ = 0;  // words of one packed block
  std::int64_t piece_bytes_ = 0;
  BlockLinePiece* pieces_ = nullptr;  // (blocks, lines)
  std::byte* weights_ = nullptr;
};

}  // namespace filigree::cpu
