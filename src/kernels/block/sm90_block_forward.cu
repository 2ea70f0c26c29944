// y (T, N) = activation(x (T, K) · Wᵀ + bias) + residual on Hopper; the kernel is in sm90_block_lines.cuh.
#include "kernels/block/sm90_block.h"
#include "kernels/block/sm90_block_lines.cuh"
#include "kernels/block/sm90_launch.h"
#include "kernels/block/sm90_tensor_map.h"

namespace filigree::sm90 {

void block_forward(const BlockForwardArgs& args, const BlockPlan& plan, CUstream_st* stream) {
  const BlockGrid& grid = args.grid;
  const CUtensorMap x = tensor_map(args.x, args.tokens, grid.columns, kSm90TokenTile);
  const CUtensorMap values = tensor_map(args.values, args.lists.blocks * kSm90Block, kSm90Block, kShareRows);
  const auto output = [&](const void* data) { return tensor_map(data, args.tokens, grid.rows, kStagingTokens); };
  const CUtensorMap y = output(args.y);
  const CUtensorMap pre_activation = args.pre_activation != nullptr ? output(args.pre_activation) : y;
  const CUtensorMap residual = args.residual != nullptr ? output(args.residual) : y;
  const LinesProblem problem = {
      .line_start = args.lists.row_start,
      .entries = args.lists.row_entries,
      .bias = args.bias,
      .lines = static_cast<std::int32_t>(grid.block_rows()),
      .outputs = static_cast<std::int32_t>(grid.rows),
      .cluster_tiles = static_cast<std::int32_t>((args.tokens + kClusterTokens - 1) / kClusterTokens),
      .pre_activation = args.pre_activation != nullptr,
      .activation = args.activation,
      .joined = args.residual != nullptr,
  };
  launch_clusters(block_lines_kernel<Direction::forward>, plan.clusters, kThreads, kLinesSharedBytes, stream, x, values,
                  y, pre_activation, residual, problem);
}

int active_clusters() {
  const auto kernel = block_lines_kernel<Direction::forward>;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kLinesSharedBytes));
  const ClusterLaunch launch(1, kThreads, kLinesSharedBytes, nullptr);
  int clusters = 0;
  check(cudaOccupancyMaxActiveClusters(&clusters, kernel, &launch.config));
  return clusters;
}

}  // namespace filigree::sm90
