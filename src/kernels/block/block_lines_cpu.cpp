// Drives the forward product and dX: one driver, for dX is the product with the transposed lists and blocks.
//
//   all threads pack the kept blocks: tile rows side by side for each step of the reduction
//   each thread, for its tokens (and its lines, when tokens are few):
//     for a few panels of tokens             x transposed: tokens in the lanes
//       for each block of lines              their sums in L2
//         for each block of operand lines    their part of the panels and of the weights in L2
//           for each panel, line, tile       sums in registers over the kept blocks: block_vectors.cpp
//         add bias, round, transpose back into y
//
// Packing costs about a cycle a kept weight, once a call, where each of 1,000 tokens costs 32 of them. Panels come from
// and results go back to rows of tokens by the N:M family's transposing loads and stores.
#include <algorithm>
#include <cstddef>
#include <cstring>

#include "core/parallel.h"
#include "kernels/block/block_cpu_plan.h"
#include "kernels/block/block_decode.h"
#include "kernels/block/block_products.h"
#include "kernels/nm/nm_vectors.h"

namespace filigree::cpu {
namespace {

struct Lines {
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
struct Piece {
  std::int64_t weights;
  std::int32_t first, count;
};

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

// All kept weights in the order in which tiles read them.
class Packed {
 public:
  Packed(const Lines& lines, const BlockLinesPlan& plan, const NmTarget& target)
      : lines_(lines),
        plan_(plan),
        rows_(block_tile_rows(target.vectors)),
        blocks_((lines.shape.others + plan.other_block - 1) / plan.other_block) {
    unit_ = plan.groups * plan.words * rows_;
    piece_bytes_ = (lines.shape.lines * blocks_ * static_cast<std::int64_t>(sizeof(Piece)) + 63) / 64 * 64;
  }

  std::int64_t bytes() const { return piece_bytes_ + lines_.start[lines_.shape.lines] * unit_ * 4; }
  std::int64_t blocks() const { return blocks_; }  // of operand lines

  const Piece& piece(std::int64_t block, std::int64_t line) const { return pieces_[block * lines_.shape.lines + line]; }
  const std::byte* weights(const Piece& piece, std::int64_t group) const {
    return weights_ + (piece.weights + group * piece.count * plan_.words * rows_) * 4;
  }

  void pack(std::byte* memory) {
    pieces_ = reinterpret_cast<Piece*>(memory);
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

 private:
  // Weights of a block of lines follow each other block of operand lines by block, in which they are used together.
  void cut() {
    const std::int64_t lines = lines_.shape.lines;
    std::int64_t next = 0;
    for (std::int64_t first = 0; first < lines; first += plan_.line_block)
      for (std::int64_t block = 0; block < blocks_; ++block)
        for (std::int64_t line = first; line < std::min(lines, first + plan_.line_block); ++line) {
          Piece& piece = pieces_[block * lines + line];
          piece.first = block == 0 ? lines_.start[line] : end_of(this->piece(block - 1, line));
          std::int32_t end = piece.first;
          while (end < lines_.start[line + 1] && lines_.entries[end].other < (block + 1) * plan_.other_block) ++end;
          piece.count = end - piece.first;
          piece.weights = next;
          next += piece.count * unit_;
        }
  }
  static std::int32_t end_of(const Piece& piece) { return piece.first + piece.count; }

  template <typename T, typename Word>
  void pack_line(std::int64_t line) const {
    if (lines_.transposed)
      pack_line_as<true, T, Word>(line);
    else
      pack_line_as<false, T, Word>(line);
  }

  template <bool kTransposed, typename T, typename Word>
  void pack_line_as(std::int64_t line) const {
    const std::int64_t tile = plan_.words * rows_, row_stride = kTransposed ? 1 : lines_.block_columns;
    for (std::int64_t block = 0; block < blocks_; ++block) {
      const Piece& piece = this->piece(block, line);
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

  const Lines& lines_;
  const BlockLinesPlan& plan_;
  std::int64_t rows_;      // of a tile
  std::int64_t blocks_;    // of operand lines
  std::int64_t unit_ = 0;  // words of one packed block
  std::int64_t piece_bytes_ = 0;
  Piece* pieces_ = nullptr;  // (blocks, lines)
  std::byte* weights_ = nullptr;
};

// One thread's memory and work.
class Worker {
 public:
  Worker(const Lines& lines, const BlockLinesPlan& plan, const NmTarget& target, const Packed& packed)
      : lines_(lines),
        plan_(plan),
        packed_(packed),
        panels_(nm_matmul_kernels(target.vectors)),
        multiply_(plan.pairs ? block_multiply_line_pairs : block_kernels(target.vectors).multiply_line),
        lanes_(nm_lanes(target.vectors)),
        rows_(block_tile_rows(target.vectors)),
        full_(kBlockTileVectors * lanes_) {
    panel_floats_ = full_ * lines.shape.others * plan.words;
    sum_floats_ = full_ * plan.line_block * plan.groups * rows_;
  }

  std::int64_t bytes() const { return plan_.panels * (panel_floats_ + sum_floats_) * 4; }

  void run(std::byte* memory, std::int64_t token_begin, std::int64_t token_end, std::int64_t line_begin,
           std::int64_t line_end) {
    panel_ = reinterpret_cast<float*>(memory);
    sums_ = panel_ + plan_.panels * panel_floats_;
    for (std::int64_t token = token_begin; token < token_end; token += plan_.panels * full_) {
      const std::int64_t tokens = std::min(plan_.panels * full_, token_end - token);
      for (std::int64_t at = 0; at < tokens; at += full_) load(at / full_, token + at, std::min(full_, tokens - at));
      for (std::int64_t line = line_begin; line < line_end; line += plan_.line_block) {
        const std::int64_t count = std::min(plan_.line_block, line_end - line);
        multiply(tokens, line, count);
        for (std::int64_t at = 0; at < tokens; at += full_)
          store(at / full_, token + at, std::min(full_, tokens - at), line, count);
      }
    }
  }

 private:
  std::int64_t vectors(std::int64_t tokens) const { return (tokens + lanes_ - 1) / lanes_; }

  void load(std::int64_t panel, std::int64_t token, std::int64_t tokens) {
    const std::int64_t operands = lines_.operands();
    const std::int64_t words = plan_.pairs ? operands / 2 : operands, width = vectors(tokens) * lanes_;
    const auto* x = static_cast<const std::byte*>(lines_.x.data) +
                    token * operands * static_cast<std::int64_t>(size_of(lines_.x.dtype));
    float* to = panel_ + panel * panel_floats_;
    // A pair of bf16 travels as the fp32 of the same bits.
    panels_.load_panel(to, width, x, plan_.pairs ? DType::f32 : lines_.x.dtype, words, tokens, words);
    std::fill(to + words * width, to + lines_.shape.others * plan_.words * width, 0.0f);
  }

  void multiply(std::int64_t tokens, std::int64_t line_begin, std::int64_t count) {
    BlockLineTile tile;
    tile.depth = plan_.words;
    for (std::int64_t block = 0; block < packed_.blocks(); ++block)
      for (std::int64_t at = 0; at < tokens; at += full_) {
        const std::int64_t panel = at / full_, vectors_now = vectors(std::min(full_, tokens - at));
        tile.panel = panel_ + panel * panel_floats_;
        tile.sums = sums_ + panel * sum_floats_;
        tile.first = block == 0;
        for (std::int64_t line = line_begin; line < line_begin + count; ++line) {
          const Piece& piece = packed_.piece(block, line);
          tile.entries = lines_.entries + piece.first;
          tile.count = piece.count;
          for (std::int64_t group = 0; group < plan_.groups; ++group) {
            tile.weights = packed_.weights(piece, group);
            multiply_(tile, static_cast<int>(vectors_now));
            tile.sums += rows_ * vectors_now * lanes_;
          }
        }
      }
  }

  void store(std::int64_t panel, std::int64_t token, std::int64_t tokens, std::int64_t line, std::int64_t count) {
    const std::int64_t extent = lines_.shape.rows, padded = plan_.groups * rows_, width = vectors(tokens) * lanes_;
    const float* sums = sums_ + panel * sum_floats_;
    NmStore out;
    out.dtype = lines_.y.dtype;
    out.row_stride = lines_.results();
    const auto store_rows = [&](std::int64_t first, std::int64_t rows) {
      out.y = static_cast<std::byte*>(lines_.y.data) +
              (token * out.row_stride + first) * static_cast<std::int64_t>(size_of(out.dtype));
      out.bias = lines_.bias.empty() ? nullptr : lines_.bias.as<float>() + first;
      panels_.store_rows(out, sums, width, tokens, std::min(rows, lines_.results() - first));
    };
    if (extent == padded) return store_rows(line * extent, count * extent);
    for (std::int64_t i = 0; i < count; ++i, sums += padded * width) store_rows((line + i) * extent, extent);
  }

  const Lines& lines_;
  const BlockLinesPlan& plan_;
  const Packed& packed_;
  const NmMatmulKernels& panels_;
  void (*multiply_)(const BlockLineTile&, int);
  std::int64_t lanes_;
  std::int64_t rows_;  // of a tile
  std::int64_t full_;  // tokens of a full panel
  std::int64_t panel_floats_ = 0, sum_floats_ = 0;
  float* panel_ = nullptr;  // (panels, operand lines x words, full_)
  float* sums_ = nullptr;   // (panels, lines x groups x tile rows, full_)
};

void multiply_lines(Device& device, const Lines& lines, const NmTarget& target) {
  const std::int64_t tokens = lines.shape.tokens;
  if (tokens == 0) return;
  const BlockLinesPlan plan = plan_block_lines(lines.shape, lines.x.dtype, target, cache_sizes(), device.threads());
  Packed packed(lines, plan, target);
  const Worker worker(lines, plan, target, packed);
  const std::int64_t items = plan.token_splits * plan.line_splits;
  const std::int64_t packed_bytes = (packed.bytes() + 63) / 64 * 64;
  auto* memory = static_cast<std::byte*>(
      device.scratch(Scratch::kernel, static_cast<std::size_t>(packed_bytes + items * worker.bytes())));
  packed.pack(memory);
  const std::int64_t lanes = nm_lanes(target.vectors), vectors = (tokens + lanes - 1) / lanes;
  parallel_for(items, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t item = begin; item < end; ++item) {
      const std::int64_t part = item / plan.line_splits, line_part = item % plan.line_splits;
      Worker(worker).run(memory + packed_bytes + item * worker.bytes(), vectors * part / plan.token_splits * lanes,
                         std::min(tokens, vectors * (part + 1) / plan.token_splits * lanes),
                         lines.shape.lines * line_part / plan.line_splits,
                         lines.shape.lines * (line_part + 1) / plan.line_splits);
    }
  });
}

}  // namespace

void block_product(Device& device, const BlockProductArgs& args, const NmTarget& target) {
  if (args.x.shape[0] <= kBlockStreamedTokens) return block_decode(device, args, target);
  const BlockGrid& grid = args.weight.grid;
  multiply_lines(device,
                 {.y = args.y,
                  .x = args.x,
                  .bias = args.bias,
                  .values = args.weight.values.data,
                  .start = args.weight.lists.row_start,
                  .entries = args.weight.lists.row_entries,
                  .block_elements = grid.block_elements(),
                  .block_columns = grid.block.columns,
                  .transposed = false,
                  .shape = {.tokens = args.x.shape[0],
                            .lines = grid.block_rows(),
                            .others = grid.block_columns(),
                            .rows = grid.block.rows,
                            .depth = grid.block.columns,
                            .operands = grid.columns}},
                 target);
}

void block_product_dx(Device& device, const BlockProductDxArgs& args, const NmTarget& target) {
  const BlockGrid& grid = args.weight.grid;
  multiply_lines(device,
                 {.y = args.dx,
                  .x = args.dy,
                  .bias = {},
                  .values = args.weight.values.data,
                  .start = args.weight.lists.column_start,
                  .entries = args.weight.lists.column_entries,
                  .block_elements = grid.block_elements(),
                  .block_columns = grid.block.columns,
                  .transposed = true,
                  .shape = {.tokens = args.dy.shape[0],
                            .lines = grid.block_columns(),
                            .others = grid.block_rows(),
                            .rows = grid.block.columns,
                            .depth = grid.block.rows,
                            .operands = grid.rows}},
                 target);
}

}  // namespace filigree::cpu
