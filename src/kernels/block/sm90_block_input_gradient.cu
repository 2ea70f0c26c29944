// dx (T, K) = (dy (T, N) · W) · activation'(z) [+ dx] on Hopper; the kernel is in sm90_block_lines.cuh. Its lines are
// block columns, and wgmma reads the blocks transposed as they lie in shared memory: no second copy of the weight.
#include "kernels/block/sm90_block.h"
#include "kernels/block/sm90_block_lines.cuh"
#include "kernels/block/sm90_launch.h"
#include "kernels/block/sm90_tensor_map.h"

namespace filigree::sm90 {

void block_input_gradient(const BlockInputGradientArgs& args, const BlockPlan& plan, CUstream_st* stream) {
  const BlockGrid& grid = args.grid;
  const CUtensorMap dy = tensor_map(args.dy, args.tokens, grid.rows, kSm90TokenTile);
  const CUtensorMap values = tensor_map(args.values, args.lists.blocks * kSm90Block, kSm90Block, kShareRows);
  const bool activated = args.activation != BlockActivation::none;
  const CUtensorMap dx = tensor_map(args.dx, args.tokens, grid.columns, kStagingTokens);
  const CUtensorMap joined =
      activated ? tensor_map(args.pre_activation, args.tokens, grid.columns, kStagingTokens) : dx;
  const LinesProblem problem = {
      .line_start = args.lists.column_start,
      .entries = args.lists.column_entries,
      .bias = nullptr,
      .lines = static_cast<std::int32_t>(grid.block_columns()),
      .outputs = static_cast<std::int32_t>(grid.columns),
      .cluster_tiles = static_cast<std::int32_t>((args.tokens + kClusterTokens - 1) / kClusterTokens),
      .pre_activation = false,
      .activation = args.activation,
      .joined = args.accumulate || activated,
  };
  launch_clusters(block_lines_kernel<Direction::input_gradient>, plan.clusters, kThreads, kLinesSharedBytes, stream, dy,
                  values, dx, dx, joined, problem);
}

}  // namespace filigree::sm90
