#include "kernels/block/block_cpu_plan.h"

#include <algorithm>

namespace filigree {
namespace {

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

// Parts of `count`, at most `most` each and as equal as may be.
std::int64_t even_part(std::int64_t count, std::int64_t most) {
  return ceil_div(count, ceil_div(count, std::clamp<std::int64_t>(most, 1, count)));
}

}  // namespace

BlockLinesPlan plan_block_lines(const BlockLinesShape& shape, DType dtype, const NmTarget& target,
                                const CacheSizes& caches, int threads) {
  BlockLinesPlan plan;
  // Pairs lie along the reduction; with an odd number of operands a row of x would not begin with one.
  plan.pairs = target.bf16_dot && dtype == DType::bf16 && shape.depth % 2 == 0 && shape.operands % 2 == 0;
  plan.words = plan.pairs ? shape.depth / 2 : shape.depth;
  const std::int64_t tile_rows = block_tile_rows(target.vectors);
  plan.groups = ceil_div(shape.rows, tile_rows);

  // Half of L2 holds the operands' part of all panels, a quarter the sums; the weights of a stay (at density 1/2 about
  // as many bytes as the sums) take the rest.
  const std::int64_t width = kBlockTileVectors * nm_lanes(target.vectors) * 4;  // bytes of a panel's row
  const std::int64_t all = ceil_div(shape.tokens * 4, width);
  plan.panels = std::clamp<std::int64_t>(all, 1, 4);
  plan.other_block = even_part(shape.others, caches.l2 / 2 / (plan.panels * width * plan.words));
  plan.line_block = even_part(shape.lines, caches.l2 / 4 / (plan.panels * width * plan.groups * tile_rows));

  plan.token_splits = std::clamp<std::int64_t>(threads, 1, all);
  plan.line_splits = std::clamp<std::int64_t>(threads / plan.token_splits, 1, shape.lines);
  return plan;
}

BlockGradientPlan plan_block_gradient(const BlockGrid& grid, DType dtype, const NmTarget& target,
                                      const CacheSizes& caches) {
  BlockGradientPlan plan;
  plan.pairs = target.bf16_dot && dtype == DType::bf16;
  // A longer chunk writes the gradient less often, a shorter one keeps three vectors of x (64 bytes a token each) in
  // L1.
  plan.chunk = 256;
  const std::int64_t steps = plan.pairs ? plan.chunk / 2 : plan.chunk;
  const std::int64_t lanes = nm_lanes(target.vectors);
  const std::int64_t bytes = ceil_div(grid.block.columns, lanes) * lanes * 4 * steps;
  plan.column_block = even_part(grid.block_columns(), caches.l2 / 2 / bytes);
  return plan;
}

}  // namespace filigree
