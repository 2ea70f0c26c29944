#include "kernels/cross_entropy/cross_entropy.h"

#include <cmath>
#include <limits>

#include "kernels/kernel_test.h"

namespace filigree::testing {
namespace {

double reference(const std::vector<double>& logits, std::int64_t row, std::int64_t vocabulary, std::int64_t target) {
  const double* x = logits.data() + row * vocabulary;
  const double top = *std::max_element(x, x + vocabulary);
  double sum = 0.0;
  for (std::int64_t i = 0; i < vocabulary; ++i) sum += std::exp(x[i] - top);
  return top + std::log(sum) - x[target];
}

struct Case {
  DType dtype;
  std::int64_t tokens, vocabulary;
};
class CrossEntropyTest : public ::testing::TestWithParam<Case> {};

TEST_P(CrossEntropyTest, MatchesReferenceAndFiniteDifferences) {
  const auto [dtype, tokens, vocabulary] = GetParam();
  const auto device = Device::cpu();
  const OwnedTensor logits = random_tensor(*device, dtype, {tokens, vocabulary}, 1, 3.0);
  const OwnedTensor loss = random_tensor(*device, DType::f32, {tokens}, 2);
  const OwnedTensor targets = random_tensor(*device, DType::i32, {tokens}, 3);
  auto* target = targets.view().as<std::int32_t>();
  for (std::int64_t t = 0; t < tokens; ++t)
    target[t] = static_cast<std::int32_t>((t * 7 + vocabulary / 2) % vocabulary);
  if (tokens > 2) target[1] = -1;
  std::vector<double> x = values_of(logits);
  CrossEntropyArgs args = {.loss = loss, .logits = logits, .targets = targets, .scale = 0.25f, .loss_only = true};
  cross_entropy(*device, args);
  EXPECT_EQ(values_of(logits), x) << "loss_only leaves the logits alone";
  const std::vector<double> losses = values_of(loss);
  args.loss_only = false;
  cross_entropy(*device, args);
  EXPECT_EQ(values_of(loss), losses);

  std::vector<double> expected_loss(static_cast<std::size_t>(tokens), 0.0), expected(x.size(), 0.0);
  for (std::int64_t t = 0; t < tokens; ++t) {
    if (target[t] < 0) continue;
    expected_loss[static_cast<std::size_t>(t)] = reference(x, t, vocabulary, target[t]);
    // Differences cost a row each: all entries of small rows, some of large ones.
    for (std::int64_t i = 0; i < vocabulary; i += std::max<std::int64_t>(1, vocabulary / 50)) {
      const auto at = static_cast<std::size_t>(t * vocabulary + i);
      expected[at] = 0.25 * derivative(x, at, [&] { return reference(x, t, vocabulary, target[t]); });
      const double actual = values_of(logits.view().slice(t, 1))[static_cast<std::size_t>(i)];
      EXPECT_NEAR(actual, expected[at], tolerance(dtype, 4, std::abs(expected[at]) + 1e-5)) << t << ", " << i;
    }
  }
  expect_close(loss, expected_loss, 1, 10.0, "loss");
  if (tokens > 2) {
    EXPECT_EQ(values_of(logits.view().slice(1, 1)), std::vector<double>(static_cast<std::size_t>(vocabulary), 0.0));
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, CrossEntropyTest,
                         ::testing::Values(Case{DType::f32, 0, 5}, Case{DType::f32, 1, 1}, Case{DType::f32, 3, 2},
                                           Case{DType::f32, 5, 17}, Case{DType::f32, 4, 256}, Case{DType::f32, 3, 5003},
                                           Case{DType::bf16, 1, 1}, Case{DType::bf16, 5, 17}, Case{DType::bf16, 4, 256},
                                           Case{DType::bf16, 3, 5003}));

TEST(CrossEntropy, IsIndependentOfTheThreadCountAndOfTheChunk) {
  const auto device = Device::cpu();
  const OwnedTensor logits = random_tensor(*device, DType::f32, {9, 1001}, 1);
  const OwnedTensor loss = random_tensor(*device, DType::f32, {9}, 2);
  const OwnedTensor targets = device->memory().tensor(Purpose::workspace, DType::i32, {9});
  expect_same_for_any_thread_count(logits, [&] {
    fill_normal(logits, 1);
    cross_entropy(*device, {.loss = loss, .logits = logits, .targets = targets});
  });
  const std::vector<double> whole = values_of(logits);
  fill_normal(logits, 1);
  for (const auto& [begin, rows] : {std::pair<std::int64_t, std::int64_t>{0, 4}, {4, 5}})
    cross_entropy(*device, {.loss = loss.view().slice(begin, rows),
                            .logits = logits.view().slice(begin, rows),
                            .targets = targets.view().slice(begin, rows)});
  EXPECT_EQ(values_of(logits), whole);
}

// What lies behind the vocabulary changes nothing, and gets the gradient zero.
TEST(CrossEntropy, LeavesOutColumnsBehindTheVocabulary) {
  const auto device = Device::cpu();
  constexpr std::int64_t kTokens = 4, kVocabulary = 37, kColumns = 64;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const OwnedTensor logits = random_tensor(*device, dtype, {kTokens, kVocabulary}, 1, 3.0);
    const OwnedTensor wide = random_tensor(*device, dtype, {kTokens, kColumns}, 5, 30.0);
    const OwnedTensor loss = random_tensor(*device, DType::f32, {kTokens}, 2);
    const OwnedTensor wide_loss = random_tensor(*device, DType::f32, {kTokens}, 3);
    const OwnedTensor targets = device->memory().tensor(Purpose::workspace, DType::i32, {kTokens});
    for (std::int64_t t = 0; t < kTokens; ++t) store(targets, t, t == 2 ? -1.0 : static_cast<double>(t * 12));
    const std::vector<double> x = values_of(logits);
    for (std::int64_t t = 0; t < kTokens; ++t)
      for (std::int64_t i = 0; i < kVocabulary; ++i)
        store(wide, t * kColumns + i, x[static_cast<std::size_t>(t * kVocabulary + i)]);
    cross_entropy(*device, {.loss = loss, .logits = logits, .targets = targets, .scale = 0.25f});
    cross_entropy(*device,
                  {.loss = wide_loss, .logits = wide, .targets = targets, .vocabulary = kVocabulary, .scale = 0.25f});
    EXPECT_EQ(values_of(wide_loss), values_of(loss));
    const std::vector<double> expected = values_of(logits), got = values_of(wide);
    for (std::int64_t t = 0; t < kTokens; ++t)
      for (std::int64_t i = 0; i < kColumns; ++i)
        ASSERT_EQ(got[static_cast<std::size_t>(t * kColumns + i)],
                  i < kVocabulary ? expected[static_cast<std::size_t>(t * kVocabulary + i)] : 0.0)
            << t << ", " << i;
  }
}

TEST(CrossEntropy, HandlesExtremeLogits) {
  const auto device = Device::cpu();
  const OwnedTensor logits = device->memory().tensor(Purpose::workspace, DType::f32, {3, 20});
  const OwnedTensor loss = device->memory().tensor(Purpose::workspace, DType::f32, {3});
  const OwnedTensor targets = device->memory().tensor(Purpose::workspace, DType::i32, {3});
  store(logits, 0, 1e30);  // certain and right
  store(logits, 21, 1e4);  // certain and wrong
  store(logits, 45, std::numeric_limits<double>::quiet_NaN());
  store(logits, 2, -std::numeric_limits<double>::infinity());  // impossible
  cross_entropy(*device, {.loss = loss, .logits = logits, .targets = targets});
  const std::vector<double> losses = values_of(loss), gradient = values_of(logits);
  EXPECT_EQ(losses[0], 0.0);
  EXPECT_EQ(losses[1], 1e4);
  EXPECT_TRUE(std::isnan(losses[2])) << "a NaN must reach the loss";
  EXPECT_EQ(gradient[0], 0.0);
  EXPECT_EQ(gradient[2], 0.0);
  EXPECT_EQ(gradient[20], -1.0);
  EXPECT_EQ(gradient[21], 1.0);
}

TEST(CrossEntropy, NamesATargetOutsideTheVocabulary) {
  const auto device = Device::cpu();
  const OwnedTensor logits = random_tensor(*device, DType::f32, {2, 3}, 1);
  const OwnedTensor loss = random_tensor(*device, DType::f32, {2}, 2);
  const OwnedTensor targets = device->memory().tensor(Purpose::workspace, DType::i32, {2});
  store(targets, 1, 3);
  EXPECT_THROW(cross_entropy(*device, {.loss = loss, .logits = logits, .targets = targets}), Error);
}

TEST(CrossEntropy, SaysWhereTheTargetIsTheLargest) {
  const auto device = Device::cpu();
  for (const DType dtype : {DType::f32, DType::bf16}) {
    constexpr std::int64_t kTokens = 5, kColumns = 40, kVocabulary = 37;
    const OwnedTensor logits = random_tensor(*device, dtype, {kTokens, kColumns}, 1, 3.0);
    const std::vector<double> x = values_of(logits);
    const OwnedTensor loss = random_tensor(*device, DType::f32, {kTokens}, 2);
    const OwnedTensor targets = device->memory().tensor(Purpose::workspace, DType::i32, {kTokens});
    const OwnedTensor greedy = device->memory().tensor(Purpose::workspace, DType::i32, {kTokens});
    std::vector<std::int32_t> expected;
    for (std::int64_t t = 0; t < kTokens; ++t) {
      const auto row = x.begin() + t * kColumns;  // the columns behind the vocabulary do not count
      const auto best = static_cast<std::int32_t>(std::max_element(row, row + kVocabulary) - row);
      const std::int32_t target = t == 3 ? -1 : t == 1 ? (best + 1) % kVocabulary : best;
      targets.view().as<std::int32_t>()[t] = target;
      greedy.view().as<std::int32_t>()[t] = 7;
      expected.push_back(target == best ? 1 : 0);
    }
    cross_entropy(*device, {.loss = loss,
                            .logits = logits,
                            .targets = targets,
                            .greedy = greedy,
                            .vocabulary = kVocabulary,
                            .loss_only = true});
    const auto* flags = greedy.view().as<std::int32_t>();
    EXPECT_EQ(std::vector<std::int32_t>(flags, flags + kTokens), expected);
  }
}

}  // namespace
}  // namespace filigree::testing
