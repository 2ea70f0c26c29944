#include "kernels/block/block_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

namespace filigree {
namespace {

constexpr BlockGpu kH200{.major = 9, .minor = 0, .clusters = 66};
constexpr BlockGrid kSquare{.rows = 4096, .columns = 4096};

TEST(BlockPlan, HopperTakes128BlocksAndAlignedWidths) {
  EXPECT_EQ(choose_block_kernel(kSquare, kH200), BlockKernel::sm90);
  EXPECT_EQ(choose_block_kernel({.rows = 1600, .columns = 6400}, kH200), BlockKernel::sm90);
  EXPECT_EQ(choose_block_kernel({.rows = 1602, .columns = 6400}, kH200), BlockKernel::plain);
  EXPECT_EQ(choose_block_kernel({.rows = 4096, .columns = 4096, .block = {64, 64}}, kH200), BlockKernel::plain);
  EXPECT_EQ(choose_block_kernel(kSquare, {.major = 8, .minor = 9}), BlockKernel::plain);
}

TEST(BlockPlan, NoMoreClustersThanTiles) {
  EXPECT_EQ(plan_block_forward(kSquare, 16384, kH200).clusters, 66);
  EXPECT_EQ(plan_block_forward({.rows = 256, .columns = 4096}, 600, kH200).clusters, 4);
  EXPECT_EQ(plan_block_input_gradient({.rows = 256, .columns = 384}, 512, kH200).clusters, 3);
}

TEST(BlockPlan, FewTokensAreDecoded) {
  EXPECT_EQ(plan_block_forward(kSquare, 16, kH200).kernel, BlockKernel::decode);
  EXPECT_EQ(plan_block_forward(kSquare, 17, kH200).kernel, BlockKernel::sm90);
  EXPECT_EQ(plan_block_forward({.rows = 45, .columns = 51, .block = {10, 17}}, 1, kH200).kernel, BlockKernel::decode);
  EXPECT_EQ(plan_block_input_gradient(kSquare, 1, kH200).kernel, BlockKernel::sm90);
  EXPECT_EQ(plan_block_forward(kSquare, 1, {.major = 7, .minor = 5}).kernel, BlockKernel::plain);
}

// The fewer outputs, the more warps share the reduction of one.
TEST(BlockPlan, DecodingKeepsTheMemoryBusy) {
  EXPECT_EQ(plan_block_forward({.rows = 128, .columns = 4096}, 1, kH200).warps, kDecodeWarps);
  for (const std::int64_t rows : {128, 1600, 4800, 5120, 15360, 20480, 65536})
    for (const BlockShape block : {BlockShape{128, 128}, BlockShape{16, 16}, BlockShape{24, 8}}) {
      const BlockGrid grid{.rows = rows, .columns = 4096, .block = block};
      const std::int64_t tiles = grid.block_rows() * ((block.rows + 15) / 16);
      const int warps = plan_block_forward(grid, 1, kH200).warps;
      EXPECT_TRUE(warps == kDecodeWarps || (warps >= 2 && tiles * warps >= 1700)) << rows << " " << to_string(block);
      EXPECT_TRUE(warps == 2 || tiles * warps / 2 < 1700) << rows << " " << to_string(block);
    }
}

// All clusters' segments cover every step of every tile once; a workspace slot is used once; a cluster's pieces are at
// most two; no cluster does much more than its share.
TEST(BlockPlan, SegmentsCoverTheWeightGradient) {
  for (const std::int64_t tiles : {1, 2, 5, 65, 66, 67, 128, 200, 448, 800}) {
    for (const std::int64_t tokens : {1, 64, 1000, 4096, 16384}) {
      const BlockPlan plan = plan_block_weight_gradient(kSquare, tiles, tokens, kH200);
      std::vector<int> covered(static_cast<std::size_t>(tiles * plan.tile_steps), 0);
      std::map<int, int> slots;
      std::int64_t most = 0;
      for (int cluster = 0; cluster < plan.clusters; ++cluster) {
        std::int64_t steps = 0;
        for (int index = 0;; ++index) {
          const GradientSegment segment = gradient_segment(plan, cluster, index);
          if (segment.tile < 0) break;
          ASSERT_LT(segment.tile, tiles);
          ASSERT_LT(segment.begin, segment.end);
          ASSERT_LE(segment.end, plan.tile_steps);
          for (int step = segment.begin; step < segment.end; ++step)
            ++covered[static_cast<std::size_t>(segment.tile * plan.tile_steps + step)];
          steps += segment.end - segment.begin;
          if (segment.slot >= 0) {
            EXPECT_EQ(++slots[segment.slot], 1);
            EXPECT_LT(std::size_t(segment.slot), plan.workspace_bytes / (2 * 128 * 256 * 4));
          } else {
            EXPECT_EQ(segment.end - segment.begin, plan.tile_steps);
          }
        }
        most = std::max(most, steps);
      }
      EXPECT_TRUE(std::all_of(covered.begin(), covered.end(), [](int count) { return count == 1; }))
          << tiles << " tiles, " << tokens << " tokens";
      EXPECT_LE(most, tiles * plan.tile_steps / 66 + 17) << tiles << " tiles, " << tokens << " tokens";
    }
  }
}

TEST(BlockPlan, SplitsOnlyWhereItPays) {
  EXPECT_EQ(plan_block_weight_gradient(kSquare, 132, 16384, kH200).split_tiles, 0);
  EXPECT_EQ(plan_block_weight_gradient(kSquare, 132, 16384, kH200).workspace_bytes, 0u);
  EXPECT_EQ(plan_block_weight_gradient(kSquare, 200, 16384, kH200).split_tiles, 2);
  EXPECT_EQ(plan_block_weight_gradient(kSquare, 200, 512, kH200).split_tiles, 0);  // 8 steps a tile: nothing to save
}

}  // namespace
}  // namespace filigree
