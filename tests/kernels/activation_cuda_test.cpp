#include "kernels/activation/activation.h"

#include <cmath>
#include <limits>
#include <numbers>

#include "kernels/cuda_test.h"

namespace filigree::testing {
namespace {

struct Case {
  Activation kind;
  DType dtype;
};
class ActivationCuda : public CudaTest, public ::testing::WithParamInterface<Case> {};

constexpr std::pair<std::int64_t, std::int64_t> kShapes[] = {{1, 1},    {3, 7},     {2, 16},    {5, 33},
                                                             {3, 4099}, {70, 1024}, {150, 6400}};

TEST_P(ActivationCuda, ForwardAndBackwardMatchTheProcessor) {
  const auto [kind, dtype] = GetParam();
  for (const auto& [rows, width] : kShapes) {
    SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(width));
    const std::int64_t inputs = kind == Activation::swiglu ? 2 * width : width;
    const OwnedTensor x = random_tensor(cpu(), dtype, {rows, inputs}, 1, 2.0);
    const OwnedTensor dy = random_tensor(cpu(), dtype, {rows, width}, 2);
    const OwnedTensor y = random_tensor(cpu(), dtype, {rows, width}, 3);
    const OwnedTensor dx = random_tensor(cpu(), dtype, {rows, inputs}, 4);
    const OwnedTensor gx = on_gpu(x), gdy = on_gpu(dy), gy = on_gpu(y), gdx = on_gpu(dx);
    activation_forward(cpu(), {.kind = kind, .y = y, .x = x});
    activation_backward(cpu(), {.kind = kind, .dx = dx, .dy = dy, .x = x});
    activation_forward(gpu(), {.kind = kind, .y = gy, .x = gx});
    activation_backward(gpu(), {.kind = kind, .dx = gdx, .dy = gdy, .x = gx});
    const std::vector<double> expected = values_of(y), expected_dx = values_of(dx);
    const auto y_magnitude = [&](std::size_t i) { return 8.0 * std::abs(expected[i]) + 1e-6; };
    // The derivative's terms have the size of dy (and of the other factor), whatever their sum.
    const auto dx_magnitude = [&](std::size_t i) { return 2.0 * std::abs(expected_dx[i]) + 8.0; };
    expect_close(on_cpu(gy), expected, 1, y_magnitude, "y");
    expect_close(on_cpu(gdx), expected_dx, 1, dx_magnitude, "dx");

    // Odd addresses, dx in place of x; and the same bits.
    const Shifted moved = on_gpu_shifted(x), into = on_gpu_shifted(y), gradient = on_gpu_shifted(dy);
    activation_forward(gpu(), {.kind = kind, .y = into.view, .x = moved.view});
    activation_backward(gpu(), {.kind = kind, .dx = moved.view, .dy = gradient.view, .x = moved.view});
    expect_same(into.view, on_cpu(gy), "y at an odd address");
    expect_same(moved.view, on_cpu(gdx), "dx in place");
    activation_backward(gpu(), {.kind = kind, .dx = gx, .dy = gdy, .x = gx});
    expect_same(gx, on_cpu(gdx), "dx in place, by packs");
  }
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Activation kind : {Activation::gelu, Activation::relu, Activation::swiglu})
    for (const DType dtype : {DType::f32, DType::bf16}) all.push_back({kind, dtype});
  return all;
}
INSTANTIATE_TEST_SUITE_P(Cases, ActivationCuda, ::testing::ValuesIn(cases()));

class GeluCuda : public CudaTest {};

// Every exponent from the tiny to the huge, both signs: a few ulp of the true value, and the right limits.
TEST_F(GeluCuda, IsAccurateOverTheWholeRange) {
  std::vector<double> inputs;
  for (int exponent = -40; exponent <= 30; ++exponent)
    for (const double mantissa : {1.0, 1.1, 1.37, 1.5, 1.77, 1.93})
      for (const double sign : {-1.0, 1.0}) inputs.push_back(sign * std::ldexp(mantissa, exponent));
  const auto count = static_cast<std::int64_t>(inputs.size());
  const OwnedTensor x = cpu().memory().tensor(Purpose::workspace, DType::f32, {1, count});
  for (std::int64_t i = 0; i < count; ++i) store(x, i, inputs[static_cast<std::size_t>(i)]);
  inputs = values_of(x);
  const OwnedTensor gx = on_gpu(x), gy = on_gpu(x);
  activation_forward(gpu(), {.kind = Activation::gelu, .y = gy, .x = gx});
  const std::vector<double> found = values_of(on_cpu(gy));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const double root = std::sqrt(2.0 / std::numbers::pi);
    const double u = 2.0 * root * (inputs[i] + 0.044715 * inputs[i] * inputs[i] * inputs[i]);
    const double expected = inputs[i] / (1.0 + std::exp(-u));
    // e^-u multiplies the rounding of u by |u|: allow for it, as for 12 ulp of the rest. The gate closes at 2^-126.
    const double allowed =
        std::abs(expected) * 0x1p-24 * (12.0 + 4.0 * std::min(std::abs(u), 88.0)) + std::abs(inputs[i]) * 0x1p-126;
    EXPECT_NEAR(found[i], expected, allowed) << "x = " << inputs[i];
  }
}

TEST_F(GeluCuda, AndReluPassNanOn) {
  for (const Activation kind : {Activation::gelu, Activation::relu}) {
    const OwnedTensor x = random_tensor(cpu(), DType::f32, {1, 17}, 1);
    store(x, 3, std::numeric_limits<double>::quiet_NaN());
    store(x, 16, std::numeric_limits<double>::quiet_NaN());
    const OwnedTensor gx = on_gpu(x);
    activation_forward(gpu(), {.kind = kind, .y = gx, .x = gx});
    const std::vector<double> found = values_of(on_cpu(gx));
    EXPECT_TRUE(std::isnan(found[3]));
    EXPECT_TRUE(std::isnan(found[16]));
    EXPECT_FALSE(std::isnan(found[4]));
  }
}

}  // namespace
}  // namespace filigree::testing
