#include "kernels/block/block_cpu_plan.h"

#include <gtest/gtest.h>

namespace filigree {
namespace {

const CacheSizes kCaches[] = {{32 << 10, 512 << 10}, {32 << 10, 1 << 20}, {48 << 10, 2 << 20}, {64 << 10, 256 << 10}};

TEST(BlockCpuPlan, EveryPlanOfLinesFitsItsRules) {
  for (const NmVectors vectors : {NmVectors::basic, NmVectors::avx2, NmVectors::avx512})
    for (const bool dot : {false, true})
      for (const CacheSizes& caches : kCaches)
        for (const int threads : {1, 2, 3, 16, 200})
          for (const std::int64_t tokens : {17, 48, 1000, 16384})
            for (const std::int64_t lines : {1, 6, 48, 3142})
              for (const std::int64_t extent : {10, 16, 17, 128}) {
                const NmTarget target{vectors, dot && vectors == NmVectors::avx512, false};
                const BlockLinesShape shape{.tokens = tokens,
                                            .lines = lines,
                                            .others = 48,
                                            .rows = extent,
                                            .depth = extent,
                                            .operands = 48 * extent};
                const BlockLinesPlan plan = plan_block_lines(shape, DType::bf16, target, caches, threads);
                ASSERT_EQ(plan.pairs, target.bf16_dot && extent % 2 == 0);
                ASSERT_EQ(plan.words, plan.pairs ? extent / 2 : extent);
                ASSERT_GE(plan.groups * block_tile_rows(vectors), extent);
                ASSERT_LT((plan.groups - 1) * block_tile_rows(vectors), extent);
                ASSERT_TRUE(plan.panels >= 1 && plan.panels <= 4);
                ASSERT_TRUE(plan.line_block >= 1 && plan.line_block <= lines);
                ASSERT_TRUE(plan.other_block >= 1 && plan.other_block <= shape.others);
                ASSERT_TRUE(plan.token_splits >= 1 && plan.line_splits >= 1 && plan.line_splits <= lines);
                ASSERT_LE(plan.token_splits * plan.line_splits, threads);
                // What is meant to stay in L2 fits, but where a single line is larger already.
                const std::int64_t width = plan.panels * kBlockTileVectors * nm_lanes(vectors) * 4;
                if (plan.other_block > 1) {
                  ASSERT_LE(plan.other_block * plan.words * width, caches.l2 / 2);
                }
                if (plan.line_block > 1) {
                  ASSERT_LE(plan.line_block * plan.groups * block_tile_rows(vectors) * width, caches.l2 / 4);
                }
              }
}

TEST(BlockCpuPlan, AnOddNumberOfOperandsHasNoPairs) {
  const NmTarget zen4{NmVectors::avx512, true, true};
  BlockLinesShape shape{.tokens = 64, .lines = 4, .others = 4, .rows = 16, .depth = 16, .operands = 63};
  EXPECT_FALSE(plan_block_lines(shape, DType::bf16, zen4, kCaches[1], 2).pairs);
  shape.operands = 62;
  EXPECT_TRUE(plan_block_lines(shape, DType::bf16, zen4, kCaches[1], 2).pairs);
  EXPECT_FALSE(plan_block_lines(shape, DType::f32, zen4, kCaches[1], 2).pairs);
}

// Gradients are summed by chunks: their length may depend on nothing but the target.
TEST(BlockCpuPlan, ChunksDependOnTheTargetAlone) {
  const NmTarget target{NmVectors::avx512, false, true};
  const std::int64_t chunk =
      plan_block_gradient({.rows = 64, .columns = 64, .block = {16, 16}}, DType::f32, target, kCaches[0]).chunk;
  for (const CacheSizes& caches : kCaches)
    for (const std::int64_t columns : {16, 768, 20480})
      for (const int extent : {4, 16, 128}) {
        const BlockGrid grid{.rows = 768, .columns = columns, .block = {extent, extent}};
        const BlockGradientPlan plan = plan_block_gradient(grid, DType::f32, target, caches);
        EXPECT_EQ(plan.chunk, chunk);
        EXPECT_TRUE(plan.column_block >= 1 && plan.column_block <= grid.block_columns());
      }
}

}  // namespace
}  // namespace filigree
