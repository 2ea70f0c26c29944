#include "optim/optimizer.h"

#include <cmath>
#include <limits>

#include "support.h"

namespace filigree {
namespace {

Parameter make(Device& device, const char* name, bool decay, bool adapter) {
  Parameter parameter(device, {.name = name, .shape = {5}, .decay = decay, .adapter = adapter}, Mode::training);
  testing::fill_normal(parameter.values(), 1);
  testing::fill_normal(parameter.gradient(), 2);
  return parameter;
}

TEST(GradientNorm, SpansAllParameters) {
  const auto device = Device::cpu();
  Parameter a = make(*device, "a", true, false), b = make(*device, "b", false, false);
  double sum = 0.0;
  for (const Parameter* p : {&a, &b})
    for (const double g : testing::values_of(p->gradient())) sum += g * g;
  EXPECT_NEAR(gradient_norm(*device, {&a, &b}), std::sqrt(sum), 1e-6);
  b.gradient().as<float>()[3] = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(std::isfinite(gradient_norm(*device, {&a, &b})));
}

// One step written out from the formula, for a decayed, an undecayed and an adapter parameter.
TEST(AdamWStep, UsesEachGroupsRateCounterAndDecay) {
  const auto device = Device::cpu();
  Parameter matrix = make(*device, "w", true, false), bias = make(*device, "b", false, false),
            adapter = make(*device, "l", true, true);
  TrainConfig train;
  train.weight_decay = 0.1;
  const double clip = 0.5;
  for (Parameter* parameter : {&matrix, &bias, &adapter}) {
    const bool late = parameter->options().adapter;
    const double lr = late ? 0.02 : 0.01;
    const int t = late ? 1 : 7;
    const auto before = testing::values_of(parameter->values()), gradient = testing::values_of(parameter->gradient());
    adamw_step(*device, {parameter}, train, {.lr = 0.01, .t = 7}, {.lr = 0.02, .t = 1}, clip);
    const auto after = testing::values_of(parameter->values());
    for (std::size_t i = 0; i < before.size(); ++i) {
      const double g = gradient[i] * clip;
      const double m = 0.1 * g / (1.0 - std::pow(0.9, t)), v = 0.05 * g * g / (1.0 - std::pow(0.95, t));
      const double decayed = before[i] * (1.0 - (parameter->options().decay ? lr * 0.1 : 0.0));
      EXPECT_NEAR(after[i], decayed - lr * m / (std::sqrt(v) + train.eps), 1e-6) << parameter->name();
    }
  }
}

}  // namespace
}  // namespace filigree
