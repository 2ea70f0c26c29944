#include "kernels/nm/nm_matmul.h"
#include "kernels/nm/nm_test.h"

namespace filigree {
namespace {

using testing::OwnedNm;
using testing::random_tensor;
using testing::targets;
using testing::tolerance;
using testing::values_of;

struct Case {
  std::int64_t tokens, inputs, outputs;
  Pattern pattern;
  DType dtype = DType::f32;
  bool accumulate = false;
};

void check(Device& device, const Case& c, const NmTarget& target) {
  const OwnedNm weight(device, DType::f32, c.outputs, c.inputs, c.pattern, 1);  // only its mask is used
  const OwnedTensor x = random_tensor(device, c.dtype, {c.tokens, c.inputs}, 2);
  const OwnedTensor dy = random_tensor(device, c.dtype, {c.tokens, c.outputs}, 3);
  const OwnedTensor gradient = random_tensor(device, DType::f32, {c.outputs, kept_columns(c.inputs, c.pattern)}, 4);
  const std::vector<double> before = values_of(gradient), inputs = values_of(x), outer = values_of(dy);
  nm_matmul_gradient(
      device,
      {.gradient = gradient, .dy = dy, .x = x, .mask = weight.mask, .pattern = c.pattern, .accumulate = c.accumulate},
      target);
  const std::vector<double> got = values_of(gradient);
  std::size_t entry = 0;
  for (std::int64_t n = 0; n < c.outputs; ++n)
    for (std::int64_t k = 0; k < c.inputs; ++k) {
      if (!testing::mask_bit(weight.view, n, k)) continue;
      double sum = c.accumulate ? before[entry] : 0.0;
      for (std::int64_t t = 0; t < c.tokens; ++t)
        sum += outer[static_cast<std::size_t>(t * c.outputs + n)] * inputs[static_cast<std::size_t>(t * c.inputs + k)];
      ASSERT_NEAR(got[entry], sum, tolerance(DType::f32, c.tokens + 1, 2.0))
          << "T " << c.tokens << ", K " << c.inputs << ", N " << c.outputs << ", " << to_string(c.pattern) << ", "
          << name_of(c.dtype) << ", output " << n << ", input " << k;
      ++entry;
    }
}

class EveryGradientTarget : public ::testing::TestWithParam<testing::NamedTarget> {};

TEST_P(EveryGradientTarget, TokensAndPatternsAgreeWithADoubleProduct) {
  const auto device = Device::cpu();
  const std::vector<Pattern> patterns = {{1, 2}, {2, 4}, {1, 4}, {2, 8}, {4, 8}, {8, 16}, {3, 5}, {31, 32}};
  for (const Pattern pattern : patterns)
    for (const std::int64_t tokens : {0, 1, 3, 16, 17, 100, 257}) {
      if (tokens > 17 && pattern.of > 4) continue;
      for (const DType dtype : {DType::f32, DType::bf16})
        check(*device, {tokens, pattern.of * (100 / pattern.of), 11, pattern, dtype, tokens % 2 == 1},
              GetParam().target);
    }
}

TEST_P(EveryGradientTarget, OddShapesAndSeveralChunks) {
  const auto device = Device::cpu();
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const std::int64_t inputs : {0, 4, 28, 36, 132})
      for (const std::int64_t outputs : {0, 1, 33, 70})
        check(*device, {20, inputs, outputs, {2, 4}, dtype}, GetParam().target);
    check(*device, {1100, 36, 70, {2, 4}, dtype}, GetParam().target);
  }
}

TEST_P(EveryGradientTarget, BitsDoNotDependOnTheThreadCount) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    std::vector<float> first;
    testing::with_thread_counts({1, 2, 3, 7}, [&](Device& device) {
      const OwnedNm weight(device, DType::f32, 70, 256, {2, 4}, 1);
      const OwnedTensor x = random_tensor(device, dtype, {600, 256}, 2);
      const OwnedTensor dy = random_tensor(device, dtype, {600, 70}, 3);
      const OwnedTensor gradient = random_tensor(device, DType::f32, {70, 128}, 4);
      nm_matmul_gradient(device, {.gradient = gradient, .dy = dy, .x = x, .mask = weight.mask, .pattern = {2, 4}},
                         GetParam().target);
      const float* data = gradient.view().as<float>();
      const std::vector<float> got(data, data + gradient.view().count());
      if (first.empty()) first = got;
      EXPECT_EQ(got, first) << device.threads() << " threads";
    });
  }
}

// Mask polarity: x picks dW = 1 at kept and 1000 at dropped places; the compressed gradient must hold only ones.
TEST_P(EveryGradientTarget, KeepsTheGradientOfKeptPlaces) {
  const auto device = Device::cpu();
  const OwnedNm weight(*device, DType::f32, 1, 64, {2, 4}, 1);
  const OwnedTensor x = random_tensor(*device, DType::f32, {1, 64}, 2);
  for (std::int64_t k = 0; k < 64; ++k) testing::store(x, k, testing::mask_bit(weight.view, 0, k) ? 1.0 : 1000.0);
  const OwnedTensor dy = random_tensor(*device, DType::f32, {1, 1}, 3);
  testing::store(dy, 0, 1.0);
  const OwnedTensor gradient = random_tensor(*device, DType::f32, {1, 32}, 4);
  nm_matmul_gradient(*device, {.gradient = gradient, .dy = dy, .x = x, .mask = weight.mask, .pattern = {2, 4}},
                     GetParam().target);
  EXPECT_THAT(values_of(gradient), ::testing::Each(1.0));
}

INSTANTIATE_TEST_SUITE_P(NmGradient, EveryGradientTarget, ::testing::ValuesIn(targets()),
                         [](const auto& instance) { return instance.param.name; });

TEST(NmGradient, RefusesOperandsThatDoNotFit) {
  const auto device = Device::cpu();
  const OwnedNm weight(*device, DType::f32, 8, 16, {2, 4}, 1);
  const OwnedTensor x = random_tensor(*device, DType::f32, {3, 16}, 2);
  const OwnedTensor dy = random_tensor(*device, DType::f32, {3, 8}, 2);
  const OwnedTensor short_dy = random_tensor(*device, DType::f32, {2, 8}, 2);
  const OwnedTensor gradient = random_tensor(*device, DType::f32, {8, 8}, 3);
  const OwnedTensor wide = random_tensor(*device, DType::f32, {8, 16}, 3);
  EXPECT_THROW(nm_matmul_gradient(
                   *device, {.gradient = gradient, .dy = short_dy, .x = x, .mask = weight.mask, .pattern = {2, 4}}),
               Error);
  EXPECT_THROW(
      nm_matmul_gradient(*device, {.gradient = wide, .dy = dy, .x = x, .mask = weight.mask, .pattern = {2, 4}}), Error);
}

}  // namespace
}  // namespace filigree
