// Shortening of long curves: what must survive, and how many points may.
#include "report/curves.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/random.h"

namespace filigree {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::vector<double> noise(std::size_t count) {
  const Random random(3, RandomPurpose::test);
  std::vector<double> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<double>(random.normal(i));
  return values;
}

TEST(Downsample, KeepsShortCurvesWhole) {
  const std::vector<double> values = {3, kNan, 2};
  const auto points = downsample(values, 4);
  ASSERT_EQ(points.size(), 3u);
  EXPECT_EQ(points[2].index, 2u);
  EXPECT_TRUE(std::isnan(points[1].value));
  EXPECT_TRUE(downsample({}, 4).empty());
}

TEST(Downsample, KeepsEndsExtremesAndOrderOfAMillionSteps) {
  std::vector<double> values = noise(1'000'000);
  values[123'456] = 50.0;  // one spike each way
  values[777'777] = -40.0;
  const auto points = downsample(values, 600);
  EXPECT_LE(points.size(), 600u);
  EXPECT_GE(points.size(), 590u);
  EXPECT_EQ(points.front().index, 0u);
  EXPECT_EQ(points.back().index, values.size() - 1);
  bool high = false, low = false;
  for (std::size_t p = 0; p < points.size(); ++p) {
    EXPECT_EQ(points[p].value, values[points[p].index]);
    if (p > 0) {
      EXPECT_LT(points[p - 1].index, points[p].index);
    }
    high = high || points[p].value == 50.0;
    low = low || points[p].value == -40.0;
  }
  EXPECT_TRUE(high);
  EXPECT_TRUE(low);
}

TEST(Downsample, NeverGivesMoreThanTheLimit) {
  for (const std::size_t limit : {4u, 6u, 10u, 100u})
    for (std::size_t count = 1; count < 250; ++count) EXPECT_LE(downsample(noise(count), limit).size(), limit);
}

TEST(Downsample, StretchWithoutFiniteValuesBreaksTheLine) {
  std::vector<double> values = noise(1000);
  for (std::size_t i = 500; i < 1000; ++i) values[i] = i % 2 ? kNan : std::numeric_limits<double>::infinity();
  std::size_t gaps = 0;
  for (const CurvePoint& point : downsample(values, 100)) gaps += std::isnan(point.value) ? 1 : 0;
  EXPECT_GE(gaps, 20u);
}

TEST(Trend, FollowsAStraightLineUpToItsEnds) {
  std::vector<double> values(1000);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = 9.0 - 0.005 * static_cast<double>(i);
  const auto points = trend(values, 50, 20);
  ASSERT_EQ(points.size(), 50u);
  EXPECT_EQ(points.front().index, 0u);
  EXPECT_EQ(points.back().index, 999u);
  for (const CurvePoint& point : points) EXPECT_NEAR(point.value, values[point.index], 1e-10);
}

TEST(Trend, RemovesNoise) {
  const std::vector<double> values = noise(20'000);
  // In the middle the trend is the mean of 401 values of deviation 1: 0.05. At an end it is the intercept of a line
  // through 201, whose deviation is twice that of their mean: 0.14. Five deviations of the larger.
  for (const CurvePoint& point : trend(values, 100, 200)) EXPECT_LT(std::abs(point.value), 0.7);
}

TEST(Trend, LeavesOutWhatIsNotFinite) {
  const std::vector<double> values = {1, 2, kNan, 4, std::numeric_limits<double>::infinity(), 6};
  const auto points = trend(values, 10, 2);
  ASSERT_EQ(points.size(), 6u);
  EXPECT_NEAR(points[3].value, 4.0, 1e-12);
  EXPECT_TRUE(std::isnan(points[2].value));
  EXPECT_TRUE(std::isnan(points[4].value));
  EXPECT_EQ(trend({kNan, 7, kNan}, 10, 1)[1].value, 7.0);  // one value has no slope
  EXPECT_TRUE(trend({}, 10, 1).empty());
}

}  // namespace
}  // namespace filigree
