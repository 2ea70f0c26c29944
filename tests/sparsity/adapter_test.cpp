#include "sparsity/adapter.h"

#include "support.h"

namespace filigree {
namespace {

using testing::random_tensor;
using testing::values_of;

struct Case {
  std::unique_ptr<Device> device = Device::cpu();
  Adapter adapter;
  OwnedTensor x, dy;
  explicit Case(bool scaled)
      : adapter(*device, {.name = "layer", .inputs = 24, .outputs = 16, .rank = 4, .scaled_init = scaled}),
        x(random_tensor(*device, DType::f32, {10, 24}, 1)),
        dy(random_tensor(*device, DType::f32, {10, 16}, 2)) {
    adapter.initialize(*device);
  }
  // sum(dy · (x · leftᵀ · rightᵀ) · factor): its derivatives are what backward must give.
  double objective() {
    const OwnedTensor y = device->memory().tensor(Purpose::workspace, DType::f32, {10, 16});
    adapter.forward(*device, y, x);
    const auto a = values_of(y), b = values_of(dy);
    double sum = 0.0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
  }
};

TEST(Adapter, InsertionChangesNothing) {
  for (const bool scaled : {false, true}) {
    Case c(scaled);
    EXPECT_EQ(c.objective(), 0.0);
    EXPECT_FLOAT_EQ(c.adapter.factor(), scaled ? 1.0f : 0.25f);
  }
}

TEST(Adapter, BeginsInBf16ForInference) {
  const auto device = Device::cpu();
  AdapterSpec spec{.name = "layer", .inputs = 24, .outputs = 16, .rank = 4, .dtype = DType::bf16};
  Adapter training(*device, spec);
  spec.mode = Mode::inference;
  Adapter inference(*device, spec);
  training.initialize(*device);
  inference.initialize(*device);
  EXPECT_EQ(values_of(inference.parameters()[0]->values()), values_of(training.parameters()[0]->values()));
}

TEST(Adapter, GradientsAgreeWithFiniteDifferences) {
  for (const bool scaled : {false, true}) {
    Case c(scaled);
    testing::fill_normal(c.adapter.parameters()[1]->values(), 3);
    const OwnedTensor dx = random_tensor(*c.device, DType::f32, {10, 24}, 4);
    const std::vector<double> before = values_of(dx);
    c.adapter.backward(*c.device, dx, c.dy, c.x, false);
    const auto check = [&](const Tensor& variable, const std::vector<double>& gradient) {
      auto* data = variable.as<float>();
      for (std::int64_t i = 0; i < variable.count(); i += 7) {
        const float saved = data[i];
        data[i] = saved + 0.25f;  // the objective is linear in each array: any step is exact
        const double up = c.objective();
        data[i] = saved - 0.25f;
        const double down = c.objective();
        data[i] = saved;
        EXPECT_NEAR((up - down) / 0.5, gradient[static_cast<std::size_t>(i)], 2e-3);
      }
    };
    for (Parameter* parameter : c.adapter.parameters()) check(parameter->values(), values_of(parameter->gradient()));
    std::vector<double> added = values_of(dx);  // dx accumulates on what was there
    for (std::size_t i = 0; i < added.size(); ++i) added[i] -= before[i];
    check(c.x, added);
  }
}

TEST(Adapter, MergedEqualsFused) {
  Case c(false);
  testing::fill_normal(c.adapter.parameters()[1]->values(), 3);
  const OwnedTensor dense = c.device->memory().tensor(Purpose::workspace, DType::f32, {16, 24});
  c.adapter.merge_into(*c.device, dense);
  const OwnedTensor y = c.device->memory().tensor(Purpose::workspace, DType::f32, {10, 16});
  c.adapter.forward(*c.device, y, c.x);
  const auto w = values_of(dense), x = values_of(c.x), got = values_of(y);
  for (std::size_t t = 0; t < 10; ++t)
    for (std::size_t n = 0; n < 16; ++n) {
      double sum = 0.0;
      for (std::size_t k = 0; k < 24; ++k) sum += x[t * 24 + k] * w[n * 24 + k];
      EXPECT_NEAR(got[t * 16 + n], sum, testing::tolerance(DType::f32, 24, 4.0));
    }
}

}  // namespace
}  // namespace filigree
