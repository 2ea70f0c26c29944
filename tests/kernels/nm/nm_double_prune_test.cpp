#include <bit>
#include <cmath>

#include "kernels/nm/nm_pack.h"
#include "kernels/nm/nm_test.h"

namespace filigree {
namespace {

using testing::mask_bit;
using testing::OwnedNm;
using testing::values_of;

const std::vector<Pattern> kPatterns = {{1, 2}, {2, 4}, {1, 4}, {2, 8}, {4, 8}, {8, 16}, {3, 5}, {31, 32}};

OwnedNm empty_transpose(Device& device, DType dtype, const NmMatrix& forward) {
  return OwnedNm(device, dtype, forward.columns, forward.rows, forward.pattern, 99);
}

// The rule as the header says it, one group at a time.
void slow_double_prune(const NmMatrix& out, const NmMatrix& forward) {
  const int of = forward.pattern.of, keep = forward.pattern.keep;
  std::vector<float> dense(static_cast<std::size_t>(forward.rows * forward.columns));
  const std::vector<double> expanded = testing::dense_of(forward);
  std::transform(expanded.begin(), expanded.end(), dense.begin(),
                 [](double value) { return static_cast<float>(value); });
  auto* mask = out.mask.as<std::uint8_t>();
  std::fill_n(mask, out.mask.count(), std::uint8_t{0});
  std::int64_t written = 0;
  for (std::int64_t k = 0; k < forward.columns; ++k)
    for (std::int64_t first = 0; first < forward.rows; first += of) {
      std::vector<std::int64_t> order;
      for (std::int64_t n = first; n < first + of; ++n) order.push_back(n);
      std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
        const bool kept_a = mask_bit(forward, a, k), kept_b = mask_bit(forward, b, k);
        if (kept_a != kept_b) return kept_a;
        return kept_a && std::abs(dense[static_cast<std::size_t>(a * forward.columns + k)]) >
                             std::abs(dense[static_cast<std::size_t>(b * forward.columns + k)]);
      });
      order.resize(static_cast<std::size_t>(keep));
      std::sort(order.begin(), order.end());
      for (const std::int64_t n : order) {
        mask[k * mask_bytes(out.columns) + n / 8] |= static_cast<std::uint8_t>(1 << (n % 8));
        const float value = dense[static_cast<std::size_t>(n * forward.columns + k)];
        if (out.values.dtype == DType::f32) out.values.as<float>()[written] = value;
        if (out.values.dtype == DType::bf16) out.values.as<bf16>()[written] = bf16(value);
        ++written;
      }
    }
}

// Ties, kept zeros of both signs, denormal numbers and infinities among the values.
void make_awkward(const NmMatrix& matrix) {
  const Random random(5, RandomPurpose::test, 17);
  static constexpr double kAwkward[] = {0.0, -0.0, 1.0, -1.0, 1e-40, -1e-40, 0.5, INFINITY};
  for (std::int64_t i = 0; i < matrix.values.count(); ++i)
    if (random.below(static_cast<std::uint64_t>(i), 2) == 0)
      testing::store(matrix.values, i, kAwkward[random.below(static_cast<std::uint64_t>(i) + 1000000, 8)]);
}

TEST(NmDoublePrune, EqualsTheSlowReferenceBitForBit) {
  const auto device = Device::cpu();
  for (const Pattern pattern : kPatterns)
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const std::int64_t rows : {1, 2, 4}) {
        const OwnedNm forward(*device, dtype, pattern.of * (rows * 20 / pattern.of + 1), pattern.of * (90 / pattern.of),
                              pattern, 1);
        make_awkward(forward.view);
        const OwnedNm fast = empty_transpose(*device, dtype, forward.view);
        const OwnedNm slow = empty_transpose(*device, dtype, forward.view);
        nm_double_prune(*device, fast.view, forward.view, true, 0, forward.view.rows);
        slow_double_prune(slow.view, forward.view);
        ASSERT_TRUE(testing::same_bytes(fast.mask, slow.mask)) << to_string(pattern) << " " << name_of(dtype);
        ASSERT_TRUE(testing::same_bytes(fast.values, slow.values)) << to_string(pattern) << " " << name_of(dtype);
      }
}

TEST(NmDoublePrune, ColumnsWithEveryNumberOfKeptEntries) {
  const auto device = Device::cpu();
  // One group of four rows; columns 0..3 have 4, 0, 3, 1 kept entries, columns 4..7 two each.
  const OwnedNm forward(*device, DType::f32, 4, 8, {2, 4}, 1);
  const std::uint8_t bits[4] = {0b0011'0101, 0b0011'0101, 0b1100'0101, 0b1100'1001};
  std::copy(bits, bits + 4, forward.mask.view().as<std::uint8_t>());
  const float values[16] = {1, 7, 1, 2, -2, 0, 3, 4, 3, 0, 5, 6, -4, -0.0f, 7, 8};
  std::copy(values, values + 16, forward.values.view().as<float>());
  const OwnedNm out = empty_transpose(*device, DType::f32, forward.view);
  nm_double_prune(*device, out.view, forward.view, true, 0, 4);
  const std::uint8_t expected_bits[8] = {0b1100, 0b0011, 0b0011, 0b1001, 0b0011, 0b0011, 0b1100, 0b1100};
  const float expected[16] = {3, -4, 0, 0, 7, 0, 0, -0.0f, 1, 3, 2, 4, 5, 7, 6, 8};
  for (int k = 0; k < 8; ++k) EXPECT_EQ(out.mask.view().as<std::uint8_t>()[k], expected_bits[k]) << "column " << k;
  EXPECT_EQ(std::memcmp(out.values.view().data, expected, sizeof expected), 0);
  EXPECT_FALSE(std::signbit(out.values.view().as<float>()[6]));  // padding is +0
}

TEST(NmDoublePrune, ResultIsContainedInForwardAndPaddingIsPositiveZero) {
  const auto device = Device::cpu();
  const OwnedNm forward(*device, DType::bf16, 256, 192, {2, 4}, 1);
  const OwnedNm out = empty_transpose(*device, DType::bf16, forward.view);
  nm_double_prune(*device, out.view, forward.view, true, 0, 256);
  const std::vector<double> dense = testing::dense_of(forward.view), transposed = testing::dense_of(out.view);
  std::size_t next = 0;
  for (std::int64_t k = 0; k < 192; ++k)
    for (std::int64_t group = 0; group < 256; group += 4) {
      int kept = 0;
      for (std::int64_t n = group; n < group + 4; ++n) {
        if (!mask_bit(out.view, k, n)) continue;
        ++kept;
        const bf16 value = out.values.view().as<bf16>()[next++];
        ASSERT_EQ(transposed[static_cast<std::size_t>(k * 256 + n)], dense[static_cast<std::size_t>(n * 192 + k)]);
        if (!mask_bit(forward.view, n, k)) {
          ASSERT_EQ(value.bits, 0) << "padding must be +0";
        }
      }
      ASSERT_EQ(kept, 2);
    }
}

// SLoPe, lemma 2.1: what the second pruning drops from a random mask, in points of the dense matrix. The number kept in
// a column's group is binomial.
TEST(NmDoublePrune, DensitiesOfTheLemma) {
  const auto device = Device::cpu();
  struct Expected {
    Pattern pattern;
    double added_zeros;
  };
  for (const auto& [pattern, added] :
       {Expected{{1, 2}, 0.125}, {{2, 4}, 0.09375}, {{2, 8}, 0.0584}, {{4, 8}, 0.06836}, {{8, 16}, 0.0491}}) {
    const OwnedNm forward(*device, DType::f32, 1024, 1024, pattern, 3);
    const OwnedNm out = empty_transpose(*device, DType::f32, forward.view);
    nm_double_prune(*device, out.view, forward.view, true, 0, 1024);
    std::int64_t nonzero = 0;
    for (std::int64_t i = 0; i < out.values.view().count(); ++i) nonzero += out.values.view().as<float>()[i] != 0.0f;
    const double density = static_cast<double>(nonzero) / (1024.0 * 1024.0);
    // A group's dropped share has a deviation below 1/4; there are 2^20 / of groups.
    EXPECT_NEAR(pattern.density() - density, added, 5 * 0.25 / std::sqrt(1024.0 * 1024.0 / pattern.of) + 5e-5)
        << to_string(pattern);
  }
}

TEST(NmDoublePrune, RangesOfRowsGiveWhatTheWholeGives) {
  const auto device = Device::cpu();
  const OwnedNm forward(*device, DType::f32, 300, 132, {2, 4}, 1);
  const OwnedNm whole = empty_transpose(*device, DType::f32, forward.view);
  const OwnedNm parts = empty_transpose(*device, DType::f32, forward.view);
  std::memset(parts.mask.view().data, 0, parts.mask.view().bytes());
  nm_double_prune(*device, whole.view, forward.view, true, 0, 300);
  for (const auto& [begin, end] : {std::pair{0, 4}, {4, 100}, {100, 100}, {100, 252}, {252, 300}})
    nm_double_prune(*device, parts.view, forward.view, true, begin, end);
  EXPECT_TRUE(testing::same_bytes(whole.mask, parts.mask));
  EXPECT_TRUE(testing::same_bytes(whole.values, parts.values));
}

TEST(NmDoublePrune, ARangeLeavesTheRestAlone) {
  const auto device = Device::cpu();
  const OwnedNm forward(*device, DType::f32, 16, 8, {2, 4}, 1);
  const OwnedNm out = empty_transpose(*device, DType::f32, forward.view);
  const OwnedNm before = empty_transpose(*device, DType::f32, forward.view);
  nm_double_prune(*device, out.view, forward.view, true, 4, 12);
  for (std::int64_t k = 0; k < 8; ++k) {
    for (const int nibble : {0, 3})
      EXPECT_EQ(load_mask_bits(out.mask.view().as<std::uint8_t>() + 2 * k, 4 * nibble, 4),
                load_mask_bits(before.mask.view().as<std::uint8_t>() + 2 * k, 4 * nibble, 4));
    for (const int entry : {0, 1, 6, 7})
      EXPECT_EQ(out.values.view().as<float>()[8 * k + entry], before.values.view().as<float>()[8 * k + entry]);
  }
}

TEST(NmDoublePrune, WithoutReselectionOnlyValuesChange) {
  const auto device = Device::cpu();
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const OwnedNm forward(*device, dtype, 72, 68, {2, 4}, 1);
    const OwnedNm out = empty_transpose(*device, dtype, forward.view);
    nm_double_prune(*device, out.view, forward.view, true, 0, 72);
    const OwnedNm copy = empty_transpose(*device, dtype, forward.view);
    std::memcpy(copy.mask.view().data, out.mask.view().data, out.mask.view().bytes());
    testing::fill_normal(forward.values, 33);
    nm_double_prune(*device, out.view, forward.view, false, 0, 72);
    EXPECT_TRUE(testing::same_bytes(out.mask, copy.mask));
    const std::vector<double> dense = testing::dense_of(forward.view), transposed = testing::dense_of(out.view);
    for (std::int64_t k = 0; k < 68; ++k)
      for (std::int64_t n = 0; n < 72; ++n)
        ASSERT_EQ(transposed[static_cast<std::size_t>(k * 72 + n)],
                  mask_bit(out.view, k, n) ? dense[static_cast<std::size_t>(n * 68 + k)] : 0.0);
  }
}

// dX through the double-pruned transpose is dY W^{R,C}, and not dY W^R.
TEST(NmDoublePrune, GradientOfTheInputUsesTheDoublePrunedWeight) {
  const auto device = Device::cpu();
  const OwnedNm forward(*device, DType::f32, 64, 48, {2, 4}, 1);
  const OwnedNm out = empty_transpose(*device, DType::f32, forward.view);
  nm_double_prune(*device, out.view, forward.view, true, 0, 64);
  const OwnedTensor dy = testing::random_tensor(*device, DType::f32, {20, 64}, 2);
  const OwnedTensor dx = testing::random_tensor(*device, DType::f32, {20, 48}, 3);
  nm_matmul(*device, {.y = dx, .x = dy, .weight = out.view});
  const std::vector<double> twice = testing::dense_of(out.view), once = testing::dense_of(forward.view);
  const std::vector<double> outer = values_of(dy), got = values_of(dx);
  double distance = 0.0;
  for (std::size_t t = 0; t < 20; ++t)
    for (std::size_t k = 0; k < 48; ++k) {
      double pruned = 0.0, full = 0.0;
      for (std::size_t n = 0; n < 64; ++n) {
        pruned += outer[t * 64 + n] * twice[k * 64 + n];
        full += outer[t * 64 + n] * once[n * 48 + k];
      }
      ASSERT_NEAR(got[t * 48 + k], pruned, testing::tolerance(DType::f32, 32, 2.0));
      distance = std::max(distance, std::abs(full - pruned));
    }
  EXPECT_GT(distance, 0.1);
}

TEST(NmDoublePrune, ResultsDoNotDependOnTheThreadCount) {
  std::vector<std::vector<double>> first;
  testing::with_thread_counts({1, 2, 5}, [&](Device& device) {
    const OwnedNm forward(device, DType::f32, 132, 300, {2, 4}, 1);
    const OwnedNm out = empty_transpose(device, DType::f32, forward.view);
    nm_double_prune(device, out.view, forward.view, true, 0, 132);
    const std::vector<std::vector<double>> got = {values_of(out.values), values_of(out.mask)};
    if (first.empty()) first = got;
    EXPECT_EQ(got, first);
  });
}

TEST(NmDoublePrune, KernelsOfAllTargetsAgree) {
  const Random random(1, RandomPurpose::test);
  for (const Pattern pattern : kPatterns) {
    alignas(64) float rows[32 * 64];
    std::uint64_t kept[32];
    for (int i = 0; i < pattern.of; ++i) {
      kept[i] = random.u64(static_cast<std::uint64_t>(i));
      for (int c = 0; c < 64; ++c)
        rows[i * 64 + c] = kept[i] >> c & 1
                               ? static_cast<float>(random.below(static_cast<std::uint64_t>(i * 64 + c), 5)) - 2.0f
                               : 0.0f;
    }
    std::vector<std::uint32_t> first;
    for (const testing::NamedTarget& target : testing::targets()) {
      std::vector<std::uint32_t> bits(64);
      nm_pack_kernels(target.target.vectors).select_rows(bits.data(), rows, kept, pattern.keep, pattern.of);
      for (const std::uint32_t column : bits) ASSERT_EQ(std::popcount(column), pattern.keep);
      if (first.empty()) first = bits;
      EXPECT_EQ(bits, first) << target.name << " " << to_string(pattern);
    }
  }
}

TEST(NmDoublePrune, RefusesShapesThatDoNotFit) {
  const auto device = Device::cpu();
  const OwnedNm forward(*device, DType::f32, 16, 8, {2, 4}, 1);
  const OwnedNm out = empty_transpose(*device, DType::f32, forward.view);
  EXPECT_THROW(nm_double_prune(*device, forward.view, forward.view, true, 0, 16), Error);
  EXPECT_THROW(nm_double_prune(*device, out.view, forward.view, true, 0, 6), Error);
  EXPECT_THROW(nm_double_prune(*device, out.view, forward.view, true, 0, 20), Error);
  const OwnedNm odd(*device, DType::f32, 6, 8, {2, 4}, 1);
  const OwnedNm odd_out(*device, DType::f32, 8, 8, {2, 4}, 1);
  EXPECT_THROW(nm_double_prune(*device, odd_out.view, odd.view, true, 0, 4), Error);
}

}  // namespace
}  // namespace filigree
