#include "kernels/nm/nm_plan.h"

#include "kernels/nm/nm_test.h"

namespace filigree {
namespace {

const std::vector<Pattern> kPatterns = {{1, 2}, {2, 4}, {1, 4}, {2, 8}, {4, 8}, {8, 16}, {3, 5}, {31, 32}};
const CacheSizes kCaches[] = {{32 << 10, 512 << 10}, {32 << 10, 1 << 20}, {48 << 10, 2 << 20}, {64 << 10, 256 << 10}};

TEST(NmPlan, EveryPlanOfTheProductFitsItsRules) {
  for (const NmVectors vectors : {NmVectors::basic, NmVectors::avx2, NmVectors::avx512})
    for (const bool dot : {false, true})
      for (const Pattern pattern : kPatterns)
        for (const CacheSizes& caches : kCaches)
          for (const int threads : {1, 2, 3, 16, 200})
            for (const std::int64_t tokens : {1, 32, 33, 128, 1000, 8192})
              for (const std::int64_t outputs : {1, 48, 768, 50257}) {
                const NmTarget target{vectors, dot && vectors == NmVectors::avx512, false};
                const NmMatmulPlan plan =
                    plan_nm_matmul(tokens, outputs, pattern, DType::bf16, target, caches, threads);
                ASSERT_EQ(plan.decode, tokens <= kNmStreamedTokens);
                ASSERT_EQ(plan.bf16_dot, !plan.decode && target.bf16_dot && pattern == (Pattern{2, 4}));
                if (plan.decode || plan.bf16_dot) continue;
                ASSERT_EQ(plan.column_block % pattern.of, 0);
                ASSERT_GT(plan.column_block, 0);
                ASSERT_LE(plan.column_block, 128);
                ASSERT_EQ(plan.row_block % kNmRowGroup, 0);
                ASSERT_GT(plan.row_block, 0);
                ASSERT_TRUE(plan.vectors >= 1 && plan.vectors <= (vectors == NmVectors::avx512 ? 8 : 4));
                ASSERT_TRUE(plan.token_splits >= 1 && plan.row_splits >= 1);
                ASSERT_LE(plan.token_splits * plan.row_splits, threads);
                // Sums depend on the column block: it may depend on nothing but target and pattern.
                ASSERT_EQ(plan.column_block,
                          plan_nm_matmul(500, 96, pattern, DType::bf16, target, kCaches[0], 4).column_block);
              }
}

TEST(NmPlan, EveryPlanOfTheGradientFitsItsRules) {
  for (const NmVectors vectors : {NmVectors::basic, NmVectors::avx2, NmVectors::avx512})
    for (const Pattern pattern : kPatterns)
      for (const int threads : {1, 2, 3, 16, 200})
        for (const std::int64_t inputs : {32, 768, 4096})
          for (const std::int64_t outputs : {1, 100, 4096}) {
            const NmTarget target{vectors, false, false};
            const NmGradientPlan plan =
                plan_nm_gradient(inputs, outputs, pattern, DType::f32, target, kCaches[2], threads);
            ASSERT_TRUE(plan.column_block > 0 && plan.column_block <= 64 && plan.column_block % pattern.of == 0);
            ASSERT_TRUE(plan.row_splits >= 1 && plan.column_splits >= 1);
            ASSERT_LE(plan.row_splits * plan.column_splits, threads);
            ASSERT_EQ(plan.chunk, plan_nm_gradient(64, 64, pattern, DType::f32, target, kCaches[0], 4).chunk);
          }
}

TEST(NmPlan, TargetsFollowTheProcessor) {
  CpuFeatures zen4;
  zen4.avx2 = zen4.avx512 = zen4.avx512_vbmi2 = zen4.avx512_bf16 = true;
  EXPECT_EQ(nm_target(zen4).vectors, NmVectors::avx512);
  EXPECT_TRUE(nm_target(zen4).bf16_dot);
  EXPECT_TRUE(nm_target(zen4).words);
  CpuFeatures with_amx = zen4;
  with_amx.amx_bf16 = true;
  EXPECT_FALSE(nm_target(with_amx).bf16_dot);
  CpuFeatures amx_hidden = zen4;
  amx_hidden.avx512_fp16 = true;
  EXPECT_FALSE(nm_target(amx_hidden).bf16_dot);
  CpuFeatures haswell;
  haswell.avx2 = true;
  EXPECT_EQ(nm_target(haswell).vectors, NmVectors::avx2);
  EXPECT_EQ(nm_target({}).vectors, NmVectors::basic);
}

TEST(NmPlan, MaskBitsAreReadAndWrittenAtAnyPlace) {
  const Random random(1, RandomPurpose::test);
  std::uint8_t row[16];
  for (std::uint64_t round = 0; round < 2000; ++round) {
    for (std::uint64_t i = 0; i < 16; ++i) row[i] = static_cast<std::uint8_t>(random.below(round * 32 + i, 256));
    const int count = 1 + static_cast<int>(random.below(round * 32 + 20, 64));
    const int begin = static_cast<int>(random.below(round * 32 + 21, static_cast<std::uint32_t>(128 - count + 1)));
    const auto bit = [&](int i) { return row[i / 8] >> (i % 8) & 1; };
    std::uint64_t expected = 0;
    for (int i = 0; i < count; ++i) expected |= std::uint64_t{static_cast<unsigned>(bit(begin + i))} << i;
    ASSERT_EQ(load_mask_bits(row, begin, count), expected);
    std::vector<int> before;
    for (int i = 0; i < 128; ++i) before.push_back(bit(i));
    const std::uint64_t written = random.u64(round * 32 + 22);
    store_mask_bits(row, begin, count, written);
    for (int i = 0; i < 128; ++i)
      ASSERT_EQ(bit(i), i >= begin && i < begin + count ? static_cast<int>(written >> (i - begin) & 1)
                                                        : before[static_cast<std::size_t>(i)]);
  }
}

}  // namespace
}  // namespace filigree
