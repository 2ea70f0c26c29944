#include "data/permutation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "core/error.h"

namespace filigree {
namespace {

std::vector<std::int64_t> order(std::int64_t count, std::uint64_t seed = 1, std::uint32_t epoch = 0) {
  const Permutation permutation(count, Random(seed, RandomPurpose::shuffle, 0, epoch));
  std::vector<std::int64_t> values(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) values[static_cast<std::size_t>(i)] = permutation(i);
  return values;
}

TEST(Permutation, IsABijectionOfEverySize) {
  std::vector<std::int64_t> sizes(140);
  std::iota(sizes.begin(), sizes.end(), 1);
  for (const std::int64_t more : {255, 256, 257, 1000, 4095, 4096, 4097, 10007, 65537}) sizes.push_back(more);
  for (const std::int64_t count : sizes) {
    std::vector<bool> seen(static_cast<std::size_t>(count));
    for (const std::int64_t value : order(count)) {
      ASSERT_GE(value, 0);
      ASSERT_LT(value, count);
      ASSERT_FALSE(seen[static_cast<std::size_t>(value)]) << count;
      seen[static_cast<std::size_t>(value)] = true;
    }
  }
}

TEST(Permutation, DependsOnSeedAndEpoch) {
  EXPECT_EQ(order(1000, 1, 0), order(1000, 1, 0));
  EXPECT_NE(order(1000, 1, 0), order(1000, 1, 1));
  EXPECT_NE(order(1000, 1, 0), order(1000, 2, 0));
}

// Over many keys each index goes to each place equally often: chi-squared of `count` places, whose standard deviation
// is sqrt(2 · (count - 1)).
TEST(Permutation, SpreadsEveryIndexEvenly) {
  constexpr int kCount = 12, kKeys = 6000;
  for (const std::int64_t index : {0, 5, 11}) {
    std::vector<double> hits(kCount);
    for (std::uint32_t epoch = 0; epoch < kKeys; ++epoch)
      ++hits[static_cast<std::size_t>(Permutation(kCount, Random(9, RandomPurpose::shuffle, 0, epoch))(index))];
    double chi = 0;
    for (const double hit : hits) chi += std::pow(hit - kKeys / double{kCount}, 2) / (kKeys / double{kCount});
    EXPECT_LT(chi, kCount - 1 + 5 * std::sqrt(2.0 * (kCount - 1))) << index;
  }
}

// Neighbours do not stay neighbours: in a random order of n about 2 of n - 1 differences are 1 or -1.
TEST(Permutation, SeparatesNeighbours) {
  const auto values = order(100000);
  int close = 0;
  for (std::size_t i = 1; i < values.size(); ++i) close += std::abs(values[i] - values[i - 1]) == 1;
  EXPECT_LT(close, 12);
}

TEST(Permutation, RefusesWhatItCannotOrder) {
  const Random random(1, RandomPurpose::shuffle);
  EXPECT_THROW(Permutation(0, random), Error);
  EXPECT_THROW(Permutation(5, random)(5), Error);
  EXPECT_THROW(Permutation(5, random)(-1), Error);
}

}  // namespace
}  // namespace filigree
