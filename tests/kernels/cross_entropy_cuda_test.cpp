#include "kernels/cross_entropy/cross_entropy.h"

#include <cmath>
#include <limits>

#include "kernels/cuda_test.h"

namespace filigree::testing {
namespace {

class CrossEntropyCuda : public CudaTest, public ::testing::WithParamInterface<DType> {};

// Rows of odd width begin at any address; the widest ones do not fit into shared memory.
constexpr std::pair<std::int64_t, std::int64_t> kShapes[] = {{1, 1},     {3, 2},     {5, 7},     {3, 8},     {9, 9},
                                                             {9, 127},   {5, 1000},  {3, 8195},  {3, 32000}, {9, 50257},
                                                             {2, 50304}, {3, 70001}, {2, 130001}};

TEST_P(CrossEntropyCuda, MatchesTheProcessorAndRepeats) {
  const DType dtype = GetParam();
  for (const auto& [tokens, vocabulary] : kShapes) {
    const std::string what = std::to_string(tokens) + " x " + std::to_string(vocabulary) + ": ";
    const OwnedTensor logits = random_tensor(cpu(), dtype, {tokens, vocabulary}, 1, 3.0);
    const OwnedTensor loss = random_tensor(cpu(), DType::f32, {tokens}, 2);
    const OwnedTensor targets = cpu().memory().tensor(Purpose::workspace, DType::i32, {tokens});
    for (std::int64_t t = 0; t < tokens; ++t)  // the first, the last, an ignored one, others
      store(targets, t, static_cast<double>(t == 0 ? 0 : t == 1 ? vocabulary - 1 : t == 2 ? -1 : t * 977 % vocabulary));
    const OwnedTensor glogits[2] = {on_gpu(logits), on_gpu(logits)}, gloss = on_gpu(loss), gtargets = on_gpu(targets);
    CrossEntropyArgs args = {
        .loss = gloss, .logits = glogits[0], .targets = gtargets, .scale = 0.25f, .loss_only = true};
    cross_entropy(gpu(), args);
    expect_same(glogits[0], logits, what + "loss_only leaves the logits alone");
    const OwnedTensor losses = on_cpu(gloss);
    args.loss_only = false;
    cross_entropy(gpu(), args);
    expect_same(gloss, losses, what + "loss with a gradient");
    args.logits = glogits[1];
    cross_entropy(gpu(), args);
    expect_same(glogits[1], on_cpu(glogits[0]), what + "gradient again");

    cross_entropy(cpu(), {.loss = loss, .logits = logits, .targets = targets, .scale = 0.25f});
    expect_equal(gloss, loss, 1, 10.0, what + "loss");
    const std::vector<double> expected = values_of(logits);
    expect_close(
        on_cpu(glogits[0]), expected, 4, [&](std::size_t i) { return 2.0 * std::abs(expected[i]) + 1e-5; },
        what + "gradient");
  }
}

INSTANTIATE_TEST_SUITE_P(Types, CrossEntropyCuda, ::testing::Values(DType::f32, DType::bf16));

class CrossEntropyCudaEdges : public CudaTest {};

TEST_F(CrossEntropyCudaEdges, SaysWhereTheTargetIsTheLargest) {
  for (const std::int64_t vocabulary : {1, 7, 1001, 50257}) {
    constexpr std::int64_t kTokens = 4;
    const OwnedTensor logits = random_tensor(cpu(), DType::f32, {kTokens, vocabulary}, 1, 3.0);
    const OwnedTensor targets = cpu().memory().tensor(Purpose::workspace, DType::i32, {kTokens});
    const std::vector<double> x = values_of(logits);
    std::vector<std::int32_t> expected;
    for (std::int64_t t = 0; t < kTokens; ++t) {
      const auto row = x.begin() + t * vocabulary;
      const std::int64_t best = std::max_element(row, row + vocabulary) - row;
      const std::int64_t target = t == 3 ? -1 : t == 1 ? vocabulary / 2 : best;
      store(targets, t, static_cast<double>(target));
      expected.push_back(target == best ? 1 : 0);
    }
    const OwnedTensor glogits = on_gpu(logits), gtargets = on_gpu(targets);
    const OwnedTensor gloss = gpu().memory().tensor(Purpose::workspace, DType::f32, {kTokens});
    const OwnedTensor ggreedy = gpu().memory().tensor(Purpose::workspace, DType::i32, {kTokens});
    cross_entropy(gpu(), {.loss = gloss, .logits = glogits, .targets = gtargets, .greedy = ggreedy, .loss_only = true});
    std::vector<std::int32_t> greedy(kTokens);
    gpu().copy_to_host(greedy.data(), ggreedy);
    EXPECT_EQ(greedy, expected) << vocabulary;
  }
}

TEST_F(CrossEntropyCudaEdges, LeavesOutColumnsBehindTheVocabulary) {
  for (const auto& [vocabulary, columns] :
       {std::pair<std::int64_t, std::int64_t>{5, 8}, {1001, 1024}, {50257, 50304}}) {
    const OwnedTensor logits = random_tensor(cpu(), DType::bf16, {4, columns}, 1, 3.0);
    const OwnedTensor loss = random_tensor(cpu(), DType::f32, {4}, 2);
    const OwnedTensor targets = cpu().memory().tensor(Purpose::workspace, DType::i32, {4});
    for (std::int64_t t = 0; t < 4; ++t) store(targets, t, t == 2 ? -1.0 : static_cast<double>(t));
    const OwnedTensor glogits = on_gpu(logits), gloss = on_gpu(loss), gtargets = on_gpu(targets);
    CrossEntropyArgs args = {.loss = gloss, .logits = glogits, .targets = gtargets, .vocabulary = vocabulary};
    cross_entropy(gpu(), args);
    args.loss = loss, args.logits = logits, args.targets = targets;
    cross_entropy(cpu(), args);
    expect_equal(gloss, loss, 1, 10.0, "loss");
    const std::vector<double> expected = values_of(logits);
    expect_close(
        on_cpu(glogits), expected, 4, [&](std::size_t i) { return 2.0 * std::abs(expected[i]) + 1e-5; }, "gradient");
    for (std::int64_t i = vocabulary; i < columns; ++i)
      ASSERT_EQ(values_of(on_cpu(glogits))[static_cast<std::size_t>(i)], 0.0) << i;
  }
}

TEST_F(CrossEntropyCudaEdges, HandlesExtremeLogits) {
  constexpr std::int64_t kWidth = 4099;
  const OwnedTensor logits = cpu().memory().tensor(Purpose::workspace, DType::f32, {4, kWidth});
  const OwnedTensor targets = cpu().memory().tensor(Purpose::workspace, DType::i32, {4});
  const double infinity = std::numeric_limits<double>::infinity();
  store(logits, 0, 1e30);          // certain and right
  store(logits, 2, -infinity);     // impossible
  store(logits, kWidth + 1, 1e4);  // certain and wrong
  store(logits, 2 * kWidth + 5, std::numeric_limits<double>::quiet_NaN());
  for (std::int64_t i = 1; i < kWidth; ++i) store(logits, 3 * kWidth + i, -infinity);  // whole packs of them
  const OwnedTensor glogits = on_gpu(logits), gtargets = on_gpu(targets);
  const OwnedTensor gloss = gpu().memory().tensor(Purpose::workspace, DType::f32, {4});
  cross_entropy(gpu(), {.loss = gloss, .logits = glogits, .targets = gtargets});
  const std::vector<double> losses = values_of(on_cpu(gloss)), gradient = values_of(on_cpu(glogits));
  EXPECT_EQ(losses[0], 0.0);
  EXPECT_EQ(losses[1], 1e4);
  EXPECT_TRUE(std::isnan(losses[2])) << "a NaN must reach the loss";
  EXPECT_EQ(losses[3], 0.0);
  EXPECT_EQ(gradient[0], 0.0);
  EXPECT_EQ(gradient[2], 0.0);
  EXPECT_EQ(gradient[kWidth], -1.0);
  EXPECT_EQ(gradient[kWidth + 1], 1.0);
  for (std::size_t i = 0; i < kWidth; ++i) ASSERT_EQ(gradient[3 * kWidth + i], 0.0) << i;
}

TEST_F(CrossEntropyCudaEdges, MakesTheLossOfATargetOutsideTheVocabularyNan) {
  const OwnedTensor logits = random_tensor(cpu(), DType::bf16, {3, 37}, 1);
  const OwnedTensor targets = cpu().memory().tensor(Purpose::workspace, DType::i32, {3});
  store(targets, 1, 37);
  const OwnedTensor glogits = on_gpu(logits), gtargets = on_gpu(targets);
  const OwnedTensor gloss = gpu().memory().tensor(Purpose::workspace, DType::f32, {3});
  cross_entropy(gpu(), {.loss = gloss, .logits = glogits, .targets = gtargets});
  const std::vector<double> losses = values_of(on_cpu(gloss));
  EXPECT_TRUE(std::isfinite(losses[0]));
  EXPECT_TRUE(std::isnan(losses[1]));
  EXPECT_TRUE(std::isfinite(losses[2]));
}

}  // namespace
}  // namespace filigree::testing
