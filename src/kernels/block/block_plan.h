// Which kernel serves a block-sparse product, and how its work is cut: pure functions of plain numbers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/block/block_format.h"

namespace filigree {

struct BlockGpu {
  int major = 0;  // compute capability
  int minor = 0;
  int clusters = 0;  // clusters of two thread blocks of the largest size that run at the same time; 0 before Hopper
};

enum class BlockKernel : std::uint8_t { plain, decode, sm90 };

// Constants of the Hopper kernels (sm90_*) that a plan's arithmetic needs.
inline constexpr int kSm90Block = 128;      // block rows and columns
inline constexpr int kSm90TokenTile = 256;  // tokens of a thread block's tile, forward and input gradient
inline constexpr int kSm90Cluster = 2;      // thread blocks of a cluster
inline constexpr int kSm90Step = 64;        // depth of one step of a reduction

// Constants of decoding (block_decode_cuda.cu); rows and warps are those of its kernel for any block.
inline constexpr int kDecodeTokens = 16;  // the most that it takes
inline constexpr int kDecodeRows = 16;    // outputs of a thread block
inline constexpr int kDecodeWarps = 16;   // the most of a thread block

struct BlockPlan {
  BlockKernel kernel = BlockKernel::plain;
  // Decoding blocks that decode_stream.cuh does not take: of a thread block, which share its reduction.
  std::int32_t warps = 0;
  // A Hopper launch: `clusters` clusters run at the same time, each takes tiles in turn.
  std::int32_t clusters = 0;
  // Weight gradient only. The last tiles, too few for all clusters, are laid end to end and cut into equal pieces, one
  // a cluster; partial sums go to the workspace, and a second kernel adds them in a fixed order.
  std::int32_t tile_steps = 0;   // steps over tokens of a whole tile
  std::int32_t whole_tiles = 0;  // tiles that one cluster computes alone
  std::int32_t split_tiles = 0;  // the rest
  std::int32_t split_steps = 0;  // steps of a cluster's piece, at most tile_steps
  std::size_t workspace_bytes = 0;
};

// For many tokens.
BlockKernel choose_block_kernel(const BlockGrid& grid, const BlockGpu& gpu);
// Up to kDecodeTokens tokens go to the decoding kernel, whatever the block.
BlockPlan plan_block_forward(const BlockGrid& grid, std::int64_t tokens, const BlockGpu& gpu);
BlockPlan plan_block_input_gradient(const BlockGrid& grid, std::int64_t tokens, const BlockGpu& gpu);
BlockPlan plan_block_weight_gradient(const BlockGrid& grid, std::int64_t gradient_tiles, std::int64_t tokens,
                                     const BlockGpu& gpu);

// A part of one tile's reduction over tokens.
struct GradientSegment {
  std::int32_t tile;   // -1: no more work
  std::int32_t begin;  // steps [begin, end)
  std::int32_t end;
  std::int32_t slot;  // of the workspace, for partial sums; -1 when the segment is the whole tile
};

// The `index`-th segment of a cluster: its whole tiles, then the one or two tiles that its piece touches.
constexpr GradientSegment gradient_segment(const BlockPlan& plan, std::int32_t cluster, std::int32_t index) {
  const std::int32_t whole = cluster + index * plan.clusters;
  if (whole < plan.whole_tiles) return {whole, 0, plan.tile_steps, -1};
  const std::int32_t mine = (plan.whole_tiles - cluster + plan.clusters - 1) / plan.clusters;  // whole tiles done
  const std::int32_t part = index - (mine > 0 ? mine : 0);                                     // 0 or 1
  const std::int32_t all = plan.split_tiles * plan.tile_steps;
  const std::int32_t piece = cluster * plan.split_steps;
  const std::int32_t piece_end = piece + plan.split_steps < all ? piece + plan.split_steps : all;
  if (part > 1 || piece >= piece_end) return {-1, 0, 0, -1};
  const std::int32_t tile = piece / plan.tile_steps + part;
  const std::int32_t tile_begin = tile * plan.tile_steps;
  const std::int32_t begin = piece > tile_begin ? piece : tile_begin;
  const std::int32_t end = piece_end < tile_begin + plan.tile_steps ? piece_end : tile_begin + plan.tile_steps;
  if (begin >= end) return {-1, 0, 0, -1};
  return {plan.whole_tiles + tile, begin - tile_begin, end - tile_begin, 2 * cluster + part};
}

}  // namespace filigree
