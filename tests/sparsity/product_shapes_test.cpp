#include "sparsity/product_shapes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace filigree {
namespace {

constexpr int kH200 = 132;  // multiprocessors

// Waves of tiles of 128 x 256, as the header counts them, for widths that are multiples of 256.
std::int64_t waves_of(std::int64_t outputs, std::int64_t inputs, std::int64_t band) {
  std::int64_t sum = 0;
  for (std::int64_t row = 0; row < outputs; row += band) {
    const std::int64_t rows = std::min(band, outputs - row);
    sum += ((rows + 127) / 128 * (inputs / 256) + kH200 - 1) / kH200;
  }
  return sum;
}

TEST(GradientBand, KeepsToItsBytesAndToWholeTiles) {
  for (const std::int64_t outputs : {1, 96, 768, 5120, 9216, 20480, 50304})
    for (const std::int64_t inputs : {4, 768, 5120, 20480, 36864}) {
      const std::int64_t band = gradient_band(outputs, inputs, kH200);
      ASSERT_GE(band, 1);
      ASSERT_LE(band, outputs);
      EXPECT_TRUE(band == outputs || band % 128 == 0) << outputs << " x " << inputs;
      EXPECT_LE(band * inputs * 4, kMostBandBytes) << outputs << " x " << inputs;
    }
}

TEST(GradientBand, SmallGradientsAreOneBand) {
  EXPECT_EQ(gradient_band(96, 160, kH200), 96);
  EXPECT_EQ(gradient_band(768, 3072, kH200), 768);
  EXPECT_EQ(gradient_band(6400, 1600, kH200), 6400);
}

TEST(GradientBand, WavesOfLargeOnesAreFull) {
  // Rows, columns, and the waves that one band would need, were there room for it.
  constexpr std::int64_t kShapes[][3] = {{5120, 5120, 7}, {15360, 5120, 19}, {20480, 5120, 25}, {5120, 20480, 25}};
  for (const auto& [outputs, inputs, waves] : kShapes)
    EXPECT_LE(waves_of(outputs, inputs, gradient_band(outputs, inputs, kH200)), waves) << outputs << " x " << inputs;
}

TEST(PaddedTokens, AreFewAndNotMuchMore) {
  std::set<std::int64_t> numbers;
  for (std::int64_t tokens = 17; tokens <= 2048; ++tokens) {
    const std::int64_t padded = padded_tokens(tokens);
    ASSERT_GE(padded, tokens);
    ASSERT_EQ(padded % 8, 0) << tokens;
    ASSERT_LE(padded, std::max(tokens + 7, tokens + tokens / 8)) << tokens;
    ASSERT_EQ(padded_tokens(padded), padded) << "a plan for the padded number serves it";
    numbers.insert(padded);
  }
  EXPECT_LE(numbers.size(), 8u * 7u);
  for (const std::int64_t whole : {24, 512, 640, 1024, 1536, 2048}) EXPECT_EQ(padded_tokens(whole), whole);
  EXPECT_EQ(padded_tokens(1025), 1152);
}

}  // namespace
}  // namespace filigree
