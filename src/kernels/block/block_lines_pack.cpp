// Packing costs about a cycle a kept weight, once a call, where each of 1,000 tokens costs 32 of them.
#include <algorithm>
#include <type_traits>

#include "core/parallel.h"
#include "kernels/block/block_lines.h"

namespace filigree::cpu {
namespace {

std::uint32_t pair_of(bf16 low, bf16 high) {
  return low.bits | std::uint32_t{high.bits} << 16;
}

// out (words, kRows) of one block's tile, 0 beyond `rows`. Forward rows lie `stride` apart and words along them; for dX
// (kTransposed) it is the other way round.
template <bool kTransposed, int kRows, typename T, typename Word>
void pack_tile(Word* out, const T* block, std::int64_t stride, std::int64_t words, std::int64_t rows) {
  const auto at = [&](std::int64_t r, std::int64_t k) { return block[kTransposed ? k * stride + r : r * stride + k]; };
  const auto word = [&](std::int64_t r, std::int64_t k) -> Word {
    if constexpr (std::is_same_v<Word, float>)
      return static_cast<float>(at(r, k));
    else
      return pair_of(at(r, 2 * k), at(r, 2 * k + 1));
  };
  for (std::int64_t k = 0; k < words; ++k, out += kRows) {
    if (rows >= kRows)
      for (std::int64_t r = 0; r < kRows; ++r) out[r] = word(r, k);
    else
      for (std::int64_t r = 0; r < kRows; ++r) out[r] = r < rows ? word(r, k) : Word{};
  }
}

}  // namespace

void PackedBlockLines::pack(std::byte* memory) {
  pieces_ = reinterpret_cast<BlockLinePiece*>(memory);
  weights_ = memory + piece_bytes_;
  cut();
  parallel_for(lines_.shape.lines, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t line = begin; line < end; ++line) {
      if (plan_.pairs)
        pack_line<bf16, std::uint32_t>(line);
      else if (lines_.x.dtype == DType::f32)
        pack_line<float, float>(line);
      else
        pack_line<bf16, float>(line);
    }
  });
}

// Weights of a block of lines follow each other block of operand lines by block, in which they are used together.
void PackedBlockLines::cut() {
  const std::int64_t lines = lines_.shape.lines;
  std::int64_t next = 0;
  for (std::int64_t first = 0; first < lines; first += plan_.line_block)
    for (std::int64_t block = 0; block < blocks_; ++block)
      for (std::int64_t line = first; line < std::min(lines, first + plan_.line_block); ++line) {
        BlockLinePiece& piece = pieces_[block * lines + line];
        piece.first = block == 0 ? lines_.start[line] : this->piece(block - 1, line).end();
        std::int32_t end = piece.first;
        while (end < lines_.start[line + 1] && lines_.entries[end].other < (block + 1) * plan_.other_block) ++end;
        piece.count = end - piece.first;
        piece.weights = next;
        next += piece.count * unit_;
      }
}

template <typename T, typename Word>
void PackedBlockLines::pack_line(std::int64_t line) const {
  if (lines_.transposed)
    pack_line_as<true, T, Word>(line);
  else
    pack_line_as<false, T, Word>(line);
}

template <bool kTransposed, typename T, typename Word>
void PackedBlockLines::pack_line_as(std::int64_t line) const {
  const std::int64_t tile = plan_.words * rows_, row_stride = kTransposed ? 1 : lines_.block_columns;
  for (std::int64_t block = 0; block < blocks_; ++block) {
    const BlockLinePiece& piece = this->piece(block, line);
    for (std::int32_t i = 0; i < piece.count; ++i) {
      const T* from =
          static_cast<const T*>(lines_.values) + lines_.entries[piece.first + i].block * lines_.block_elements;
      for (std::int64_t group = 0; group < plan_.groups; ++group) {
        auto* out = reinterpret_cast<Word*>(weights_) + piece.weights + (group * piece.count + i) * tile;
        const std::int64_t row = group * rows_, rows = lines_.shape.rows - row;
        if (rows_ == 8)
          pack_tile<kTransposed, 8>(out, from + row * row_stride, lines_.block_columns, plan_.words, rows);
        else
          pack_tile<kTransposed, 4>(out, from + row * row_stride, lines_.block_columns, plan_.words, rows);
      }
    }
  }
}

}  // namespace filigree::cpu
