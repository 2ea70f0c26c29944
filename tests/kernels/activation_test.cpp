#include "kernels/activation/activation.h"

#include <cmath>
#include <limits>
#include <numbers>

#include "kernels/kernel_test.h"

namespace filigree::testing {
namespace {

double reference(Activation kind, const std::vector<double>& x, std::size_t i, std::int64_t width) {
  if (kind == Activation::relu) return std::max(x[i], 0.0);
  if (kind == Activation::gelu) {
    const double u = std::sqrt(2.0 / std::numbers::pi) * (x[i] + 0.044715 * x[i] * x[i] * x[i]);
    return x[i] / 2 * (1 + std::tanh(u));
  }
  const std::size_t f = static_cast<std::size_t>(width), row = i / f, column = i % f;
  const double gate = x[row * 2 * f + column];
  return gate / (1 + std::exp(-gate)) * x[row * 2 * f + f + column];
}

struct Case {
  Activation kind;
  DType dtype;
  std::int64_t rows, width;
};

class ActivationTest : public ::testing::TestWithParam<Case> {};

TEST_P(ActivationTest, ForwardAndBackwardMatchReference) {
  const auto [kind, dtype, rows, width] = GetParam();
  const auto device = Device::cpu();
  const std::int64_t inputs = kind == Activation::swiglu ? 2 * width : width;
  const OwnedTensor x = random_tensor(*device, dtype, {rows, inputs}, 1, 2.0);
  const OwnedTensor y = random_tensor(*device, dtype, {rows, width}, 2);
  const OwnedTensor dy = random_tensor(*device, dtype, {rows, width}, 3);
  const OwnedTensor dx = random_tensor(*device, dtype, {rows, inputs}, 4);
  activation_forward(*device, {.kind = kind, .y = y, .x = x});
  activation_backward(*device, {.kind = kind, .dx = dx, .dy = dy, .x = x});

  std::vector<double> inputs_of = values_of(x);
  const std::vector<double> gradients = values_of(dy);
  std::vector<double> expected(gradients.size());
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = reference(kind, inputs_of, i, width);
  // Far to the left the gate is e^x: its argument's rounding comes multiplied by the argument, 8 to 16 here.
  expect_close(
      y, expected, 1, [&](std::size_t i) { return 4.0 * std::abs(expected[i]) + 1e-6; }, "y");

  std::vector<double> expected_dx(inputs_of.size(), 0.0);
  for (std::size_t j = 0; j < inputs_of.size(); ++j) {
    std::size_t i = j;  // the output that input j reaches
    if (kind == Activation::swiglu) {
      const auto f = static_cast<std::size_t>(width);
      i = j / (2 * f) * f + j % f;
    }
    if (kind == Activation::relu && std::abs(inputs_of[j]) < 1e-2) {  // the kink: the header names the value
      expected_dx[j] = inputs_of[j] > 0 ? gradients[i] : 0.0;
      continue;
    }
    expected_dx[j] = gradients[i] * derivative(inputs_of, j, [&] { return reference(kind, inputs_of, i, width); });
  }
  // The derivative's terms have the size of dy (and of the other factor), whatever their sum.
  expect_close(
      dx, expected_dx, 1, [&](std::size_t j) { return std::abs(expected_dx[j]) + 4.0; }, "dx");

  // dx may alias x.
  activation_backward(*device, {.kind = kind, .dx = x, .dy = dy, .x = x});
  EXPECT_EQ(values_of(x), values_of(dx));
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Activation kind : {Activation::gelu, Activation::relu, Activation::swiglu})
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const auto& [rows, width] : std::vector<std::pair<std::int64_t, std::int64_t>>{
               {0, 5}, {3, 0}, {1, 1}, {3, 7}, {2, 16}, {5, 33}, {3, 4099}})
        all.push_back({kind, dtype, rows, width});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Shapes, ActivationTest, ::testing::ValuesIn(cases()));

// Every exponent from the tiny to the huge, both signs: a few ulp of the true value, and the right limits.
TEST(Activation, IsAccurateOverTheWholeRange) {
  const auto device = Device::cpu();
  std::vector<double> inputs;
  for (int exponent = -40; exponent <= 30; ++exponent)
    for (const double mantissa : {1.0, 1.1, 1.37, 1.5, 1.77, 1.93})
      for (const double sign : {-1.0, 1.0}) inputs.push_back(sign * std::ldexp(mantissa, exponent));
  const auto count = static_cast<std::int64_t>(inputs.size());
  const OwnedTensor x = random_tensor(*device, DType::f32, {1, count}, 1);
  const OwnedTensor y = random_tensor(*device, DType::f32, {1, count}, 1);
  for (std::int64_t i = 0; i < count; ++i) store(x, i, inputs[static_cast<std::size_t>(i)]);
  inputs = values_of(x);
  activation_forward(*device, {.kind = Activation::gelu, .y = y, .x = x});
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const double root = std::sqrt(2.0 / std::numbers::pi);
    const double u = 2.0 * root * (inputs[i] + 0.044715 * inputs[i] * inputs[i] * inputs[i]);
    const double expected = inputs[i] / (1.0 + std::exp(-u));
    // e^-2u multiplies the rounding of u by |2u|: allow for it, as for 8 ulp of the rest. The gate closes at 2^-126.
    const double allowed =
        std::abs(expected) * 0x1p-24 * (8.0 + 4.0 * std::min(std::abs(u), 88.0)) + std::abs(inputs[i]) * 0x1p-126;
    EXPECT_NEAR(values_of(y)[i], expected, allowed) << "x = " << inputs[i];
  }
}

// As the model calls it: both ways in place, the derivative from what was written.
TEST(Activation, ReluNeedsItsOutputAlone) {
  const auto device = Device::cpu();
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const OwnedTensor x = random_tensor(*device, dtype, {3, 71}, 1), y = random_tensor(*device, dtype, {3, 71}, 1);
    const OwnedTensor dx = random_tensor(*device, dtype, {3, 71}, 2), dy = random_tensor(*device, dtype, {3, 71}, 2);
    store(x, 5, 0.0);
    store(y, 5, 0.0);
    activation_forward(*device, {.kind = Activation::relu, .y = y, .x = y});
    activation_backward(*device, {.kind = Activation::relu, .dx = dy, .dy = dy, .x = y});
    activation_backward(*device, {.kind = Activation::relu, .dx = dx, .dy = dx, .x = x});
    EXPECT_EQ(values_of(dy), values_of(dx));
    EXPECT_EQ(values_of(dy)[5], 0.0);
  }
}

TEST(Activation, PassesNanOn) {
  const auto device = Device::cpu();
  for (const Activation kind : {Activation::gelu, Activation::relu}) {
    const OwnedTensor x = random_tensor(*device, DType::f32, {1, 17}, 1);
    store(x, 3, std::numeric_limits<double>::quiet_NaN());
    store(x, 16, std::numeric_limits<double>::quiet_NaN());
    activation_forward(*device, {.kind = kind, .y = x, .x = x});
    EXPECT_TRUE(std::isnan(values_of(x)[3]));
    EXPECT_TRUE(std::isnan(values_of(x)[16]));
    EXPECT_FALSE(std::isnan(values_of(x)[4]));
  }
}

TEST(Activation, RejectsShapesThatDoNotFit) {
  const auto device = Device::cpu();
  const OwnedTensor x = random_tensor(*device, DType::f32, {2, 6}, 1);
  EXPECT_THROW(activation_forward(*device, {.kind = Activation::swiglu, .y = x, .x = x}), Error);
}

}  // namespace
}  // namespace filigree::testing
