#include "kernels/block/block_plan.h"

#include <algorithm>

namespace filigree {

namespace {

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

// Partial sums of a slot: a thread block holds 128 x 256 fp32 accumulators.
constexpr std::size_t kSlotBytes = std::size_t{kSm90Cluster} * 128 * 256 * 4;

// Steps that a split must save to be worth writing, reading and adding partial sums: about 12 us, at 0.7 us a step
// (H200).
constexpr std::int64_t kLeastSaved = 16;
// A piece shorter than this is mostly filling and draining of the pipeline.
constexpr std::int64_t kLeastPiece = 4;

BlockPlan plan_lines(const BlockGrid& grid, std::int64_t lines, std::int64_t tokens, const BlockGpu& gpu) {
  BlockPlan plan;
  plan.kernel = choose_block_kernel(grid, gpu);
  const std::int64_t tiles = lines * ceil_div(tokens, std::int64_t{kSm90TokenTile} * kSm90Cluster);
  plan.clusters = static_cast<std::int32_t>(std::min<std::int64_t>(tiles, gpu.clusters));
  return plan;
}

// Warps that keep a GPU's memory busy: 13 or more on each of an H200's 132 multiprocessors, with 4 KB on their way
// each. More of them would only shorten what each has to do.
constexpr std::int64_t kBusyWarps = 1700;

BlockPlan plan_decode(const BlockGrid& grid) {
  BlockPlan plan;
  plan.kernel = BlockKernel::decode;
  const std::int64_t tiles = grid.block_rows() * ceil_div(grid.block.rows, kDecodeRows);
  plan.warps = 2;
  while (plan.warps < kDecodeWarps && tiles * plan.warps < kBusyWarps) plan.warps *= 2;
  return plan;
}

}  // namespace

BlockKernel choose_block_kernel(const BlockGrid& grid, const BlockGpu& gpu) {
  const bool fits = grid.block == BlockShape{kSm90Block, kSm90Block} && grid.rows % 8 == 0 && grid.columns % 8 == 0;
  return fits && gpu.major == 9 && gpu.clusters > 0 ? BlockKernel::sm90 : BlockKernel::plain;
}

BlockPlan plan_block_forward(const BlockGrid& grid, std::int64_t tokens, const BlockGpu& gpu) {
  if (tokens <= kDecodeTokens && gpu.major >= 8) return plan_decode(grid);
  return plan_lines(grid, grid.block_rows(), tokens, gpu);
}

BlockPlan plan_block_input_gradient(const BlockGrid& grid, std::int64_t tokens, const BlockGpu& gpu) {
  return plan_lines(grid, grid.block_columns(), tokens, gpu);
}

BlockPlan plan_block_weight_gradient(const BlockGrid& grid, std::int64_t gradient_tiles, std::int64_t tokens,
                                     const BlockGpu& gpu) {
  BlockPlan plan;
  plan.kernel = choose_block_kernel(grid, gpu);
  if (plan.kernel == BlockKernel::plain) return plan;
  const std::int64_t steps = ceil_div(tokens, kSm90Step);
  const std::int64_t rest = gradient_tiles % gpu.clusters;
  const std::int64_t piece = std::max(ceil_div(rest * steps, gpu.clusters), kLeastPiece);
  plan.tile_steps = static_cast<std::int32_t>(steps);
  plan.whole_tiles = static_cast<std::int32_t>(gradient_tiles);
  if (rest > 0 && steps - piece >= kLeastSaved) {
    plan.whole_tiles = static_cast<std::int32_t>(gradient_tiles - rest);
    plan.split_tiles = static_cast<std::int32_t>(rest);
    plan.split_steps = static_cast<std::int32_t>(piece);
    plan.workspace_bytes = 2 * kSlotBytes * static_cast<std::size_t>(gpu.clusters);
  }
  plan.clusters = static_cast<std::int32_t>(
      plan.split_tiles > 0 ? gpu.clusters : std::min<std::int64_t>(gradient_tiles, gpu.clusters));
  return plan;
}

}  // namespace filigree
