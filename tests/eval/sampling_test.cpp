#include "eval/sampling.h"

#include <array>
#include <cmath>
#include <map>

#include "support.h"

namespace filigree {
namespace {

std::array<float, 5> logits = {std::log(0.5f), std::log(0.25f), std::log(0.15f), std::log(0.07f), std::log(0.03f)};

std::map<int, double> frequencies(const SamplingOptions& options) {
  Sampler sampler(options);
  const Tensor view{logits.data(), DType::f32, {5}};
  std::map<int, double> counts;
  constexpr int kDraws = 40000;
  for (int i = 0; i < kDraws; ++i) counts[sampler.sample(view, i)] += 1.0 / kDraws;
  return counts;
}

TEST(Sampler, DrawsInProportion) {
  const auto found = frequencies({.temperature = 1.0});
  for (int id = 0; id < 5; ++id) EXPECT_NEAR(found.at(id), std::exp(logits[static_cast<std::size_t>(id)]), 0.01);
}

TEST(Sampler, TemperatureSharpens) {
  const auto found = frequencies({.temperature = 0.5});
  const double total = 0.25 + 0.0625 + 0.0225 + 0.0049 + 0.0009;
  EXPECT_NEAR(found.at(0), 0.25 / total, 0.01);
  EXPECT_EQ(frequencies({.temperature = 0.0}).at(0), frequencies({.temperature = 0.0}).at(0));
  EXPECT_EQ(frequencies({.temperature = 0.0}).size(), 1u);
}

TEST(Sampler, TopKAndTopPCutTheTail) {
  EXPECT_EQ(frequencies({.temperature = 1.0, .top_k = 2}).size(), 2u);
  EXPECT_EQ(frequencies({.temperature = 1.0, .top_p = 0.75}).size(), 2u);  // 0.5 + 0.25 reach it
  EXPECT_EQ(frequencies({.temperature = 1.0, .top_p = 0.76}).size(), 3u);
  EXPECT_NEAR(frequencies({.temperature = 1.0, .top_k = 2}).at(1), 1.0 / 3.0, 0.01);
}

TEST(Sampler, DependsOnSeedAndPlaceAlone) {
  const Tensor view{logits.data(), DType::f32, {5}};
  Sampler a({.temperature = 1.0, .seed = 1}), b({.temperature = 1.0, .seed = 1}), c({.temperature = 1.0, .seed = 2});
  int different = 0;
  b.sample(view, 77);  // what was drawn before does not matter
  for (int i = 0; i < 100; ++i) {
    const auto draw = a.sample(view, i);
    EXPECT_EQ(b.sample(view, i), draw);
    different += c.sample(view, i) != draw;
  }
  EXPECT_GT(different, 20);
}

TEST(Sampler, RefusesWhatMakesNoSense) {
  EXPECT_THROW(check_sampling({.temperature = -1.0}), UserError);
  EXPECT_THROW(check_sampling({.top_k = -1}), UserError);
  EXPECT_THROW(check_sampling({.top_p = 0.0}), UserError);
  EXPECT_THROW(check_sampling({.top_p = 1.5}), UserError);
}

}  // namespace
}  // namespace filigree
