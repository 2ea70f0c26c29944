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
// Panels come from and results go back to rows of tokens by the N:M family's transposing loads and stores.
#include <algorithm>
#include <cstddef>

#include "core/parallel.h"
#include "kernels/block/block_decode.h"
#include "kernels/block/block_lines.h"
#include "kernels/nm/nm_vectors.h"

namespace filigree::cpu {
namespace {

// One thread's memory and work.
class Worker {
 public:
  Worker(const BlockLines& lines, const BlockLinesPlan& plan, const NmTarget& target, const PackedBlockLines& packed)
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
          const BlockLinePiece& piece = packed_.piece(block, line);
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

  const BlockLines& lines_;
  const BlockLinesPlan& plan_;
  const PackedBlockLines& packed_;
  const NmMatmulKernels& panels_;
  void (*multiply_)(const BlockLineTile&, int);
  std::int64_t lanes_;
  std::int64_t rows_;  // of a tile
  std::int64_t full_;  // tokens of a full panel
  std::int64_t panel_floats_ = 0, sum_floats_ = 0;
  float* panel_ = nullptr;  // (panels, operand lines x words, full_)
  float* sums_ = nullptr;   // (panels, lines x groups x tile rows, full_)
};

void multiply_lines(Device& device, const BlockLines& lines, const NmTarget& target) {
  const std::int64_t tokens = lines.shape.tokens;
  if (tokens == 0) return;
  const BlockLinesPlan plan = plan_block_lines(lines.shape, lines.x.dtype, target, cache_sizes(), device.threads());
  PackedBlockLines packed(lines, plan, target);
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
