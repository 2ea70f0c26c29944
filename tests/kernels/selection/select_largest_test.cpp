#include <limits>

#include "kernels/selection/selection_support.h"

namespace filigree::testing {
namespace {

void expect_chosen(const std::vector<float>& scores, std::int64_t keep, std::int64_t radius) {
  const auto device = Device::cpu();
  const auto count = static_cast<std::int64_t>(scores.size());
  OwnedSelection chosen(count);
  const LargestArgs args = {.chosen = chosen.view, .scores = scores.data(), .keep = keep, .radius = radius};
  select_largest(*device, {&args, 1});
  const std::set<std::int64_t> expected = largest_by_sorting(scores, keep, radius);
  const std::string what =
      std::to_string(count) + " entries, keep " + std::to_string(keep) + ", radius " + std::to_string(radius);
  ASSERT_EQ(chosen.entries(), expected) << what;
  EXPECT_EQ(chosen.before, OwnedSelection::of(count, expected).before) << what;
}

TEST(SelectLargest, ChoosesExactlyTheLargestWithTiesByIndex) {
  for (const std::int64_t count : {1, 2, 31, 32, 33, 1023, 1024, 1025, 5000})
    for (const std::uint32_t distinct : {0u, 1u, 3u, 100u})
      for (const std::int64_t keep : {std::int64_t{1}, (count + 9) / 10, (count + 1) / 2, count})
        expect_chosen(test_scores(count, distinct, static_cast<std::uint32_t>(count) + distinct), keep, 0);
}

TEST(SelectLargest, WidensCentresWithinTheArray) {
  for (const std::int64_t count : {1, 40, 1024, 1057, 5000})
    for (const std::int64_t radius : {1, 2, 31, 32, 50, 1000, 100000})
      for (const std::int64_t keep : {std::int64_t{1}, (count + 99) / 100})
        expect_chosen(test_scores(count, 0, static_cast<std::uint32_t>(count + radius)), keep, radius);
}

TEST(SelectLargest, OrdersSpecialValues) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float tiny = std::numeric_limits<float>::denorm_min();
  const float most = std::numeric_limits<float>::max();
  for (std::int64_t keep = 1; keep <= 6; ++keep) expect_chosen({-0.0f, tiny, -infinity, 0.0f, most, -1.0f}, keep, 0);
  const auto device = Device::cpu();
  const std::vector<float> scores = {infinity, std::numeric_limits<float>::quiet_NaN()};
  OwnedSelection chosen(2);
  const LargestArgs args = {.chosen = chosen.view, .scores = scores.data(), .keep = 1};
  select_largest(*device, {&args, 1});
  EXPECT_EQ(chosen.entries(), std::set<std::int64_t>{1});
}

TEST(SelectLargest, IsIndependentOfTheThreadCount) {
  const auto device = Device::cpu();
  constexpr std::int64_t kCount = 300000;
  const std::vector<float> scores = test_scores(kCount, 500, 1);
  OwnedSelection chosen(kCount);
  const Tensor bits{chosen.bits.data(), DType::i32, {selection_words(kCount)}};
  expect_same_for_any_thread_count(bits, [&] {
    const LargestArgs args = {.chosen = chosen.view, .scores = scores.data(), .keep = kCount / 3};
    select_largest(*device, {&args, 1});
  });
  EXPECT_EQ(chosen.before.back(), kCount / 3);
}

TEST(SelectLargest, RefusesToKeepNoneOrMoreThanThereAre) {
  const auto device = Device::cpu();
  const std::vector<float> scores(5, 1.0f);
  OwnedSelection chosen(5);
  for (const std::int64_t keep : {0, 6}) {
    const LargestArgs args = {.chosen = chosen.view, .scores = scores.data(), .keep = keep};
    EXPECT_THROW(select_largest(*device, {&args, 1}), Error);
  }
}

}  // namespace
}  // namespace filigree::testing
