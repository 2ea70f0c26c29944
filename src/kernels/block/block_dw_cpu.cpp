// Drives dW at the kept blocks.
//
//   for each chunk of tokens                  256
//     copy x and dy into panels               all threads; inputs in the lanes: nothing is transposed
//     each thread, for its share of the blocks:
//       for each block of columns             their x in L2
//         for each block row                  its dy in L1
//           for three vectors of kept inputs  sums in registers over the chunk: block_vectors.cpp
//
// An entry is summed over chunks in order, whoever computes it.
#include <algorithm>
#include <bit>
#include <cstddef>
#include <type_traits>

#include "core/parallel.h"
#include "kernels/block/block_cpu_plan.h"
#include "kernels/block/block_products.h"

namespace filigree::cpu {
namespace {

class Gradient {
 public:
  Gradient(const BlockProductDwArgs& args, const NmTarget& target)
      : args_(args),
        grid_(args.grid),
        plan_(plan_block_gradient(args.grid, args.x.dtype, target, cache_sizes())),
        multiply_(plan_.pairs ? block_multiply_gradient_pairs : block_kernels(target.vectors).multiply_gradient),
        lanes_(nm_lanes(target.vectors)),
        rows_(block_tile_rows(target.vectors)),
        vectors_((grid_.block.columns + lanes_ - 1) / lanes_),
        groups_((grid_.block.rows + rows_ - 1) / rows_) {
    steps_ = plan_.pairs ? plan_.chunk / 2 : plan_.chunk;
    // One line more: panels a power of two apart would meet in the same places of a cache.
    x_stride_ = (steps_ + 1) * lanes_;
    x_words_ = grid_.block_columns() * vectors_ * x_stride_;
    dy_stride_ = steps_ * rows_;
    dy_words_ = grid_.block_rows() * groups_ * dy_stride_;
  }

  void run(Device& device) {
    x_ = static_cast<std::uint32_t*>(
        device.scratch(Scratch::kernel, static_cast<std::size_t>((x_words_ + dy_words_) * 4)));
    dy_ = x_ + x_words_;
    const std::int64_t tokens = args_.x.shape[0], threads = device.threads();
    for (token_ = 0; token_ < tokens; token_ += plan_.chunk) {
      count_ = std::min(plan_.chunk, tokens - token_);
      load();
      const std::int64_t parts = std::min<std::int64_t>(threads, args_.lists.blocks);
      parallel_for(parts, 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t part = begin; part < end; ++part)
          multiply(args_.lists.blocks * part / parts, args_.lists.blocks * (part + 1) / parts);
      });
    }
  }

 private:
  // A panel's columns in the matrix that it is copied from; `valid` of its words exist there, the others are zero.
  struct Source {
    std::int64_t column, valid;
    std::uint32_t* panel;
  };

  void load() {
    const auto load_as = [&]<typename T, int kLanes, int kRows>() {
      load_panels<T, kLanes>(args_.x, grid_.block_columns(), grid_.block.columns, vectors_, x_, x_stride_);
      load_panels<T, kRows>(args_.dy, grid_.block_rows(), grid_.block.rows, groups_, dy_, dy_stride_);
    };
    with_compute_type(args_.x.dtype, [&]<typename T>() {
      if (lanes_ == 16) load_as.template operator()<T, 16, 8>();
      if (lanes_ == 8) load_as.template operator()<T, 8, 4>();
      if (lanes_ == 4) load_as.template operator()<T, 4, 4>();
    });
  }

  // Panels (lines, pieces, steps, kWidth) of `from` (tokens, columns): a line is `extent` columns, cut into pieces.
  template <typename T, int kWidth>
  void load_panels(const Tensor& from, std::int64_t lines, std::int64_t extent, std::int64_t pieces, std::uint32_t* to,
                   std::int64_t stride) const {
    const std::int64_t columns = from.shape[1];
    parallel_for(lines * pieces, kStrip, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t first = begin; first < end; first += kStrip) {
        // A few panels at a time: what is read are whole cache lines, what is written a few streams.
        Source strip[kStrip];
        const std::int64_t count = std::min(kStrip, end - first);
        for (std::int64_t i = 0; i < count; ++i) {
          const std::int64_t line = (first + i) / pieces, piece = (first + i) % pieces;
          const std::int64_t column = line * extent + piece * kWidth;
          const std::int64_t valid = std::min((line + 1) * extent, columns) - column;
          strip[i] = {column, std::clamp<std::int64_t>(valid, 0, kWidth), to + (first + i) * stride};
        }
        load_strip<T, kWidth>(from, strip, count);
      }
    });
  }

  template <typename T, int kWidth>
  void load_strip(const Tensor& from, const Source* strip, std::int64_t count) const {
    const std::int64_t columns = from.shape[1];
    const T* row = from.as<T>() + token_ * columns;
    std::int64_t token = 0;
    if constexpr (std::is_same_v<T, bf16>) {
      if (plan_.pairs) {
        const auto pair = [&](const T* at) { return at[0].bits | std::uint32_t{at[columns].bits} << 16; };
        for (; token + 2 <= count_; token += 2, row += 2 * columns)
          for (std::int64_t i = 0; i < count; ++i) {
            __builtin_prefetch(row + strip[i].column + kAhead * columns);
            __builtin_prefetch(row + strip[i].column + (kAhead + 1) * columns);
            copy<kWidth>(strip[i], token / 2, [&](std::int64_t c) { return pair(row + strip[i].column + c); });
          }
        for (; token < count_; ++token)  // an odd one has no partner
          for (std::int64_t i = 0; i < count; ++i)
            copy<kWidth>(strip[i], token / 2,
                         [&](std::int64_t c) { return std::uint32_t{row[strip[i].column + c].bits}; });
        return;
      }
    }
    for (; token < count_; ++token, row += columns)
      for (std::int64_t i = 0; i < count; ++i) {
        __builtin_prefetch(row + strip[i].column + kAhead * columns);
        copy<kWidth>(strip[i], token, [&](std::int64_t c) {
          return std::bit_cast<std::uint32_t>(static_cast<float>(row[strip[i].column + c]));
        });
      }
  }

  template <int kWidth, typename Word>
  static void copy(const Source& source, std::int64_t step, Word&& word) {
    std::uint32_t* out = source.panel + step * kWidth;
    if (source.valid == kWidth)
      for (int c = 0; c < kWidth; ++c) out[c] = word(c);
    else
      for (int c = 0; c < kWidth; ++c) out[c] = c < source.valid ? word(c) : 0u;
  }

  // Blocks [begin, end), some of which may be parts of a block row.
  void multiply(std::int64_t begin, std::int64_t end) const {
    const std::int32_t* start = args_.lists.row_start;
    const std::int64_t first_row = std::upper_bound(start, start + grid_.block_rows(), begin) - start - 1;
    for (std::int64_t column = 0; column < grid_.block_columns(); column += plan_.column_block)
      for (std::int64_t row = first_row; row < grid_.block_rows() && start[row] < end; ++row) {
        const BlockEntry* entries = args_.lists.row_entries;
        const auto before = [](const BlockEntry& entry, std::int64_t other) { return entry.other < other; };
        const BlockEntry* from = entries + std::max<std::int64_t>(start[row], begin);
        const BlockEntry* to = entries + std::min<std::int64_t>(start[row + 1], end);
        multiply_row(row, std::lower_bound(from, to, column, before),
                     std::lower_bound(from, to, column + plan_.column_block, before));
      }
  }

  void multiply_row(std::int64_t row, const BlockEntry* from, const BlockEntry* to) const {
    BlockGradientPiece piece;
    piece.stride = grid_.block.columns;
    piece.steps = plan_.pairs ? (count_ + 1) / 2 : count_;
    piece.add = args_.accumulate || token_ > 0;
    for (; from < to; ++from)
      for (std::int64_t vector = 0; vector < vectors_; ++vector) {
        const int at = piece.vectors++;
        piece.gradient[at] = args_.gradient.as<float>() + from->block * grid_.block_elements() + vector * lanes_;
        piece.x[at] = x_ + (from->other * vectors_ + vector) * x_stride_;
        piece.lanes[at] = static_cast<int>(std::min(lanes_, grid_.block.columns - vector * lanes_));
        if (piece.vectors < kBlockTileVectors && (from + 1 < to || vector + 1 < vectors_)) continue;
        multiply_rows(piece, row);
        piece.vectors = 0;
      }
  }

  void multiply_rows(BlockGradientPiece piece, std::int64_t row) const {
    for (std::int64_t group = 0; group < groups_; ++group) {
      piece.dy = dy_ + (row * groups_ + group) * dy_stride_;
      piece.rows = static_cast<int>(std::min(rows_, grid_.block.rows - group * rows_));
      multiply_(piece);
      for (int v = 0; v < piece.vectors; ++v) piece.gradient[v] += rows_ * piece.stride;
    }
  }

  static constexpr std::int64_t kStrip = 8;   // panels that are filled together
  static constexpr std::int64_t kAhead = 12;  // tokens: rows lie too far apart for the hardware to foresee

  const BlockProductDwArgs& args_;
  const BlockGrid& grid_;
  BlockGradientPlan plan_;
  void (*multiply_)(const BlockGradientPiece&);
  std::int64_t lanes_;
  std::int64_t rows_;     // of a tile
  std::int64_t vectors_;  // of a block's row
  std::int64_t groups_;   // tiles of rows in a block
  std::int64_t steps_ = 0, x_stride_ = 0, dy_stride_ = 0, x_words_ = 0, dy_words_ = 0;
  std::uint32_t* x_ = nullptr;          // (block columns, vectors, steps + 1, lanes)
  std::uint32_t* dy_ = nullptr;         // (block rows, groups, steps, tile rows)
  std::int64_t token_ = 0, count_ = 0;  // of the present chunk
};

}  // namespace

void block_product_dw(Device& device, const BlockProductDwArgs& args, const NmTarget& target) {
  if (args.x.shape[0] > 0)
    Gradient(args, target).run(device);
  else if (!args.accumulate)
    std::fill_n(args.gradient.as<float>(), args.gradient.count(), 0.0f);
}

}  // namespace filigree::cpu
