#include "kernels/nm/nm_pack.h"

#include <bit>
#include <cmath>
#include <map>

#include "kernels/nm/nm_test.h"

namespace filigree {
namespace {

using testing::OwnedNm;
using testing::random_tensor;
using testing::values_of;

const std::vector<Pattern> kPatterns = {{1, 2}, {2, 4}, {1, 4}, {2, 8}, {4, 8}, {8, 16}, {3, 5}, {31, 32}};

OwnedTensor mask_tensor(Device& device, std::int64_t rows, std::int64_t columns) {
  OwnedTensor mask = device.memory().tensor(Purpose::metadata, DType::u8, {rows, mask_bytes(columns)});
  std::memset(mask.view().data, 0xff, mask.view().bytes());  // whatever was there must not matter
  return mask;
}

OwnedTensor row_of(Device& device, const std::vector<float>& values) {
  OwnedTensor row = device.memory().tensor(Purpose::weights, DType::f32, {1, static_cast<std::int64_t>(values.size())});
  std::copy(values.begin(), values.end(), row.view().as<float>());
  return row;
}

TEST(NmSelect, MagnitudeTakesTheLargestAndTheSmallerColumnOfEquals) {
  const auto device = Device::cpu();
  const OwnedTensor weights =
      row_of(*device, {1, -3, 2, 0.5f, 0, 0, 0, 0, -2, 2, 2, -2, 1, -0.0f, 0.0f, 1e-40f, -5, 5, 6, -7});
  const OwnedTensor mask = mask_tensor(*device, 1, 20);
  nm_select_magnitude(*device, mask, weights, {2, 4});
  const auto* bytes = mask.view().as<std::uint8_t>();
  EXPECT_EQ(bytes[0], 0b0011'0110);
  EXPECT_EQ(bytes[1], 0b1001'0011);  // a denormal number is larger than zero
  EXPECT_EQ(bytes[2], 0b0000'1100);  // and the bits beyond the row are clear
}

TEST(NmSelect, MagnitudeKeepsTheLargestOfEveryPattern) {
  const auto device = Device::cpu();
  for (const Pattern pattern : kPatterns)
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const std::int64_t columns = pattern.of * 7;
      const OwnedTensor weights = random_tensor(*device, dtype, {5, columns}, 1);
      const OwnedTensor mask = mask_tensor(*device, 5, columns);
      nm_select_magnitude(*device, mask, weights, pattern);
      const NmMatrix matrix{{}, mask, 5, columns, pattern};
      const std::vector<double> values = values_of(weights);
      for (std::int64_t row = 0; row < 5; ++row)
        for (std::int64_t first = 0; first < columns; first += pattern.of) {
          std::vector<std::pair<double, std::int64_t>> order;
          for (std::int64_t c = first; c < first + pattern.of; ++c)
            order.emplace_back(-std::abs(values[static_cast<std::size_t>(row * columns + c)]), c);
          std::sort(order.begin(), order.end());
          for (int i = 0; i < pattern.of; ++i)
            ASSERT_EQ(testing::mask_bit(matrix, row, order[static_cast<std::size_t>(i)].second), i < pattern.keep)
                << to_string(pattern) << ", row " << row;
        }
    }
}

TEST(NmSelect, RandomIsUniformOverTheChoicesOfAGroup) {
  const auto device = Device::cpu();
  const std::int64_t rows = 500, columns = 480;  // 60,000 groups of four
  const OwnedTensor mask = mask_tensor(*device, rows, columns);
  nm_select_random(*device, mask, rows, columns, {2, 4}, Random(3, RandomPurpose::mask));
  std::map<int, int> count;
  for (std::int64_t i = 0; i < mask.view().count(); ++i) {
    const std::uint8_t byte = mask.view().as<std::uint8_t>()[i];
    ++count[byte & 15];
    ++count[byte >> 4];
  }
  ASSERT_EQ(count.size(), 6u);
  for (const auto& [nibble, times] : count) {
    EXPECT_EQ(std::popcount(static_cast<unsigned>(nibble)), 2);
    EXPECT_NEAR(times, 10000, 5 * std::sqrt(10000.0 * 5 / 6)) << nibble;
  }
}

TEST(NmSelect, RandomKeepsTheRightNumberAndFollowsItsKey) {
  const auto device = Device::cpu();
  for (const Pattern pattern : kPatterns) {
    const std::int64_t columns = pattern.of * 9;
    const OwnedTensor a = mask_tensor(*device, 6, columns), b = mask_tensor(*device, 6, columns);
    nm_select_random(*device, a, 6, columns, pattern, Random(3, RandomPurpose::mask, 1));
    const NmMatrix matrix{{}, a, 6, columns, pattern};
    for (std::int64_t row = 0; row < 6; ++row)
      for (std::int64_t first = 0; first < columns; first += pattern.of) {
        int kept = 0;
        for (std::int64_t c = first; c < first + pattern.of; ++c) kept += testing::mask_bit(matrix, row, c);
        ASSERT_EQ(kept, pattern.keep) << to_string(pattern);
      }
    nm_select_random(*device, b, 6, columns, pattern, Random(3, RandomPurpose::mask, 1));
    EXPECT_TRUE(testing::same_bytes(a, b));
    nm_select_random(*device, b, 6, columns, pattern, Random(3, RandomPurpose::mask, 2));
    EXPECT_FALSE(testing::same_bytes(a, b)) << to_string(pattern);
  }
}

TEST(NmPack, ExpandIsTheDefinitionOfTheFormat) {
  const auto device = Device::cpu();
  for (const Pattern pattern : kPatterns)
    for (const DType from : {DType::f32, DType::bf16})
      for (const DType to : {DType::f32, DType::bf16})
        for (const std::int64_t rows : {0, 1, 3, 70}) {
          const std::int64_t columns = pattern.of * (150 / pattern.of);
          const OwnedNm matrix(*device, from, rows, columns, pattern, 1);
          const OwnedTensor dense = random_tensor(*device, to, {rows, columns}, 2);
          const OwnedTensor transposed = random_tensor(*device, to, {columns, rows}, 3);
          nm_expand(*device, dense, matrix.view);
          nm_expand_transposed(*device, transposed, matrix.view);
          const std::vector<double> expected = testing::dense_of(matrix.view);
          const std::vector<double> got = values_of(dense), got_transposed = values_of(transposed);
          for (std::int64_t row = 0; row < rows; ++row)
            for (std::int64_t column = 0; column < columns; ++column) {
              double value = expected[static_cast<std::size_t>(row * columns + column)];
              if (to == DType::bf16) value = static_cast<double>(static_cast<float>(bf16(static_cast<float>(value))));
              ASSERT_EQ(got[static_cast<std::size_t>(row * columns + column)], value);
              ASSERT_EQ(got_transposed[static_cast<std::size_t>(column * rows + row)], value);
            }
        }
}

TEST(NmPack, ExpandWritesPositiveZeros) {
  const auto device = Device::cpu();
  const OwnedNm matrix(*device, DType::f32, 3, 68, {2, 4}, 1);
  testing::store(matrix.values, 0, -0.0);
  const OwnedTensor dense = random_tensor(*device, DType::f32, {3, 68}, 2);
  nm_expand(*device, dense, matrix.view);
  int negative = 0;
  for (std::int64_t i = 0; i < 3 * 68; ++i) {
    const float value = dense.view().as<float>()[i];
    negative += value == 0.0f && std::signbit(value);
  }
  EXPECT_EQ(negative, 1);  // the kept one alone
}

TEST(NmPack, CompressTakesKeptEntriesAndInvertsExpand) {
  const auto device = Device::cpu();
  for (const Pattern pattern : kPatterns)
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const std::int64_t columns = pattern.of * (150 / pattern.of);
      const OwnedNm matrix(*device, dtype, 9, columns, pattern, 1);
      OwnedNm copy(*device, dtype, 9, columns, pattern, 1);
      testing::fill_normal(copy.values, 5);
      const OwnedTensor dense = random_tensor(*device, DType::f32, {9, columns}, 2);
      nm_expand(*device, dense, matrix.view);
      // What is dropped must not be looked at: mask polarity.
      for (std::int64_t i = 0; i < dense.view().count(); ++i)
        if (!testing::mask_bit(matrix.view, i / columns, i % columns)) testing::store(dense, i, 1000.0);
      nm_compress(*device, copy.view, dense);
      EXPECT_TRUE(testing::same_bytes(copy.values, matrix.values)) << to_string(pattern) << " " << name_of(dtype);
    }
}

TEST(NmPack, CompressRoundsToNearestEven) {
  const auto device = Device::cpu();
  const OwnedNm matrix(*device, DType::bf16, 1, 4, {2, 4}, 1);
  matrix.mask.view().as<std::uint8_t>()[0] = 0b1010;
  nm_compress(*device, matrix.view, row_of(*device, {9, 1.00390625f, 9, 1.01171875f}));
  EXPECT_THAT(values_of(matrix.values), ::testing::ElementsAre(1.0, 1.015625));
}

TEST(NmPack, CompressAddsWhenItAccumulates) {
  const auto device = Device::cpu();
  const OwnedNm matrix(*device, DType::f32, 7, 132, {2, 4}, 1);
  const OwnedTensor dense = random_tensor(*device, DType::f32, {7, 132}, 2);
  const std::vector<double> before = values_of(matrix.values), add = values_of(dense);
  nm_compress(*device, matrix.view, dense, true);
  const std::vector<double> after = values_of(matrix.values);
  std::size_t next = 0;
  for (std::int64_t i = 0; i < dense.view().count(); ++i) {
    if (!testing::mask_bit(matrix.view, i / 132, i % 132)) continue;
    const auto sum = static_cast<float>(before[next]) + static_cast<float>(add[static_cast<std::size_t>(i)]);
    ASSERT_EQ(after[next], static_cast<double>(sum));
    ++next;
  }
}

TEST(NmPack, ResultsDoNotDependOnTheThreadCount) {
  std::vector<std::vector<double>> first;
  testing::with_thread_counts({1, 2, 5}, [&](Device& device) {
    const OwnedNm matrix(device, DType::f32, 33, 260, {2, 4}, 1);
    const OwnedTensor dense = random_tensor(device, DType::bf16, {33, 260}, 2);
    const OwnedTensor transposed = random_tensor(device, DType::bf16, {260, 33}, 2);
    nm_expand(device, dense, matrix.view);
    nm_expand_transposed(device, transposed, matrix.view);
    nm_compress(device, matrix.view, dense);
    const std::vector<std::vector<double>> got = {values_of(dense), values_of(transposed), values_of(matrix.values)};
    if (first.empty()) first = got;
    EXPECT_EQ(got, first);
  });
}

TEST(NmPack, RefusesShapesThatDoNotFit) {
  const auto device = Device::cpu();
  const OwnedNm matrix(*device, DType::f32, 4, 16, {2, 4}, 1);
  const OwnedTensor dense = random_tensor(*device, DType::f32, {4, 12}, 2);
  const OwnedTensor mask = mask_tensor(*device, 4, 24);
  EXPECT_THROW(nm_expand(*device, dense, matrix.view), Error);
  EXPECT_THROW(nm_expand_transposed(*device, dense, matrix.view), Error);
  EXPECT_THROW(nm_compress(*device, matrix.view, dense), Error);
  EXPECT_THROW(nm_select_magnitude(*device, mask, dense, {2, 4}), Error);
  EXPECT_THROW(nm_select_random(*device, mask, 4, 22, {2, 4}, Random(1, RandomPurpose::mask)), Error);
  EXPECT_THROW(nm_select_random(*device, mask, 4, 24, {4, 4}, Random(1, RandomPurpose::mask)), Error);
}

// Every target's kernels against plain loops; the functions above only use the best one.
TEST(NmPack, KernelsOfAllTargetsAgree) {
  for (const testing::NamedTarget& target : testing::targets()) {
    const NmPackKernels& kernels = nm_pack_kernels(target.target.vectors);
    const Random random(1, RandomPurpose::test);
    for (std::uint64_t round = 0; round < 200; ++round) {
      const int columns = 1 + static_cast<int>(round % 64);
      const std::uint64_t bits = random.u64(round) & (~std::uint64_t{0} >> (64 - columns));
      alignas(64) float dense[64], expanded[64], packed[64 + 16], expected[64] = {};
      for (int i = 0; i < 64; ++i) dense[i] = random.normal(1000 + round * 64 + static_cast<std::uint64_t>(i));
      std::vector<float> kept;
      for (int i = 0; i < columns; ++i)
        if (bits >> i & 1) {
          kept.push_back(dense[i]);
          expected[i] = dense[i];
        }
      ASSERT_EQ(kernels.compress(packed, bits, columns, dense), static_cast<int>(kept.size()));
      ASSERT_TRUE(std::equal(kept.begin(), kept.end(), packed)) << target.name;
      ASSERT_EQ(kernels.expand(expanded, bits, columns, kept.data(), kept.data() + kept.size(), DType::f32),
                static_cast<int>(kept.size()));
      ASSERT_TRUE(std::equal(expected, expected + columns, expanded)) << target.name;
    }
  }
}

}  // namespace
}  // namespace filigree
