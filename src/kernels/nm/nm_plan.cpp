#include "kernels/nm/nm_plan.h"

#include <unistd.h>

#include <algorithm>

#include "kernels/nm/nm_vectors.h"

namespace filigree {
namespace {

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

// The most whole groups in `columns`.
std::int64_t whole_groups(std::int64_t columns, Pattern pattern) {
  return columns / pattern.of * pattern.of;
}

}  // namespace

CacheSizes cache_sizes() {
  CacheSizes sizes;
  const long l1 = sysconf(_SC_LEVEL1_DCACHE_SIZE);
  const long l2 = sysconf(_SC_LEVEL2_CACHE_SIZE);
  if (l1 > 0) sizes.l1 = l1;
  if (l2 > 0) sizes.l2 = l2;
  return sizes;
}

NmTarget nm_target(const CpuFeatures& features) {
  NmTarget target;
  target.vectors = features.avx512 ? NmVectors::avx512 : features.avx2 ? NmVectors::avx2 : NmVectors::basic;
  target.bf16_dot = features.avx512_bf16 && !features.amx_bf16 && !features.avx512_fp16;
  target.words = features.avx512_vbmi2;
  return target;
}

NmMatmulPlan plan_nm_matmul(std::int64_t tokens, std::int64_t outputs, Pattern pattern, DType dtype,
                            const NmTarget& target, const CacheSizes& caches, int threads) {
  NmMatmulPlan plan;
  plan.decode = tokens <= kNmStreamedTokens;
  plan.bf16_dot = !plan.decode && target.bf16_dot && dtype == DType::bf16 && pattern == Pattern{2, 4};
  const std::int64_t lanes = nm_lanes(target.vectors);
  if (plan.decode || plan.bf16_dot) return plan;

  // 16 registers hold 3 x 4 sums, 32 hold 3 x 8. A panel of 64 inputs x 8 vectors is 32 KB and shares a 48 KB L1 with
  // the sums that stream past; where L1 is 32 KB (Zen 4) 6 vectors, 24 KB, take its place. Neither number changes a
  // result: every output is summed by itself, in an order that column_block alone decides.
  const bool wide = target.vectors == NmVectors::avx512;
  plan.vectors = !wide ? 4 : caches.l1 >= (48 << 10) ? 8 : 6;
  // Narrow vectors: 128 inputs x 32 tokens, 16 KB.
  plan.column_block = whole_groups(wide ? 64 : 128, pattern);

  // Threads split the tokens, in whole vectors, as long as every thread gets a full panel; then outputs as well, at the
  // price of transposing x once for each part.
  plan.token_splits = static_cast<int>(std::clamp<std::int64_t>(ceil_div(tokens, lanes * plan.vectors), 1, threads));
  plan.row_splits = static_cast<int>(
      std::clamp<std::int64_t>(threads / plan.token_splits, 1, std::max<std::int64_t>(1, outputs / 48)));

  // The more rows share a stay of a panel's part in L1, the better; their sums take at most a quarter of L2, which
  // leaves most of it to the panel.
  plan.row_block = std::clamp<std::int64_t>(caches.l2 / 4 / (plan.vectors * lanes * 4) / 48 * 48, 48, 960);
  return plan;
}

NmGradientPlan plan_nm_gradient(std::int64_t inputs, std::int64_t outputs, Pattern pattern, DType dtype,
                                const NmTarget& target, const CacheSizes& caches, int threads) {
  NmGradientPlan plan;
  plan.bf16_dot = target.bf16_dot && dtype == DType::bf16;
  // A row's chunk of dy stays in registers, 16 of 32 or 8 of 16, beside four running sums and their reduction. The
  // inputs' chunk of a column block stays in L1: 32 x 1 KB, or 64 x 256 bytes. Sums depend on the chunk, so it depends
  // on the target alone.
  const bool wide = target.vectors == NmVectors::avx512;
  plan.vectors = wide ? 16 : 8;
  plan.chunk = plan.vectors * nm_lanes(target.vectors) * (plan.bf16_dot ? 2 : 1);
  plan.column_block = whole_groups(wide ? 32 : 64, pattern);
  // Rows share a stay of x's block in L1; their dy takes a quarter of L2.
  plan.row_block = std::clamp<std::int64_t>(caches.l2 / 4 / (plan.vectors * nm_lanes(target.vectors) * 4), 64, 1024);
  plan.row_splits = static_cast<int>(std::clamp<std::int64_t>(outputs / 32, 1, threads));
  plan.column_splits = static_cast<int>(
      std::clamp<std::int64_t>(threads / plan.row_splits, 1, std::max<std::int64_t>(1, inputs / plan.column_block)));
  return plan;
}

}  // namespace filigree
