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
  DType out = DType::f32;
  bool bias = false;
  bool accumulate = false;
  float scale = 1.0f;
};

std::ostream& operator<<(std::ostream& to, const Case& c) {
  return to << "T " << c.tokens << ", K " << c.inputs << ", N " << c.outputs << ", " << to_string(c.pattern) << ", "
            << name_of(c.dtype) << " to " << name_of(c.out) << (c.bias ? ", bias" : "")
            << (c.accumulate ? ", accumulate" : "") << ", scale " << c.scale;
}

// Compares with a double product of the dense matrix that the compressed one stands for.
void check(Device& device, const Case& c, const NmTarget& target) {
  const OwnedNm weight(device, c.dtype, c.outputs, c.inputs, c.pattern, 1);
  const OwnedTensor x = random_tensor(device, c.dtype, {c.tokens, c.inputs}, 2);
  const OwnedTensor bias = random_tensor(device, DType::f32, {c.outputs}, 3);
  const OwnedTensor y = random_tensor(device, c.out, {c.tokens, c.outputs}, 4);
  const std::vector<double> before = values_of(y), dense = testing::dense_of(weight.view), inputs = values_of(x);

  NmMatmulArgs args{.y = y, .x = x, .weight = weight.view, .scale = c.scale, .accumulate = c.accumulate};
  if (c.bias) args.bias = bias;
  nm_matmul(device, args, target);

  const std::vector<double> got = values_of(y), biases = values_of(bias);
  const double allowed = tolerance(c.out, kept_columns(c.inputs, c.pattern) + 2, 2.0 * std::max(1.0f, c.scale));
  for (std::int64_t t = 0; t < c.tokens; ++t)
    for (std::int64_t n = 0; n < c.outputs; ++n) {
      double sum = 0.0;
      for (std::int64_t k = 0; k < c.inputs; ++k)
        sum += inputs[static_cast<std::size_t>(t * c.inputs + k)] * dense[static_cast<std::size_t>(n * c.inputs + k)];
      const auto at = static_cast<std::size_t>(t * c.outputs + n);
      const double expected = sum * static_cast<double>(c.scale) +
                              (c.bias ? biases[static_cast<std::size_t>(n)] : 0.0) + (c.accumulate ? before[at] : 0.0);
      ASSERT_NEAR(got[at], expected, allowed) << c << ", token " << t << ", output " << n;
    }
}

class EveryTarget : public ::testing::TestWithParam<testing::NamedTarget> {};

TEST_P(EveryTarget, TokensAndPatternsAgreeWithADoubleProduct) {
  const auto device = Device::cpu();
  const std::vector<Pattern> patterns = {{1, 2}, {2, 4}, {1, 4}, {2, 8}, {4, 8}, {8, 16}, {3, 5}, {16, 32}};
  for (const Pattern pattern : patterns)
    for (const std::int64_t tokens : {0, 1, 3, 8, 9, 17, 32, 33, 100, 257}) {
      if (tokens > 33 && pattern.of > 4) continue;
      for (const DType dtype : {DType::f32, DType::bf16})
        check(*device, {tokens, pattern.of * (160 / pattern.of), 13, pattern, dtype, dtype}, GetParam().target);
    }
}

TEST_P(EveryTarget, OddShapes) {
  const auto device = Device::cpu();
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t tokens : {2, 35})
      for (const std::int64_t inputs : {0, 4, 60, 68, 132})
        for (const std::int64_t outputs : {0, 1, 3, 50})
          check(*device, {tokens, inputs, outputs, {2, 4}, dtype}, GetParam().target);
}

TEST_P(EveryTarget, BiasScaleAndAccumulate) {
  const auto device = Device::cpu();
  for (const std::int64_t tokens : {5, 70})
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const DType out : {DType::f32, DType::bf16})
        for (const bool bias : {false, true})
          for (const bool accumulate : {false, true})
            for (const float scale : {1.0f, 0.25f, -1.5f}) {
              if (out == DType::bf16 && dtype == DType::f32) continue;
              check(*device, {tokens, 96, 21, {2, 4}, dtype, out, bias, accumulate, scale}, GetParam().target);
            }
}

TEST_P(EveryTarget, AShapeOfAModel) {
  const auto device = Device::cpu();
  check(*device, {150, 768, 200, {2, 4}, DType::f32, DType::f32, true}, GetParam().target);
  check(*device, {150, 768, 200, {2, 4}, DType::bf16, DType::bf16, true}, GetParam().target);
}

TEST_P(EveryTarget, BitsDoNotDependOnTheThreadCount) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t tokens : {1, 5, 40, 600}) {
      std::vector<float> first;
      testing::with_thread_counts({1, 2, 3, 7}, [&](Device& device) {
        const OwnedNm weight(device, dtype, 202, 256, {2, 4}, 1);
        const OwnedTensor x = random_tensor(device, dtype, {tokens, 256}, 2);
        const OwnedTensor y = random_tensor(device, DType::f32, {tokens, 202}, 3);
        nm_matmul(device, {.y = y, .x = x, .weight = weight.view}, GetParam().target);
        const float* data = y.view().as<float>();
        const std::vector<float> got(data, data + y.view().count());
        if (first.empty()) first = got;
        EXPECT_EQ(got, first) << tokens << " tokens, " << device.threads() << " threads";
      });
    }
}

// A row's product must not depend on which panel its token fell into.
TEST_P(EveryTarget, BitsDoNotDependOnOtherTokens) {
  const auto device = Device::cpu();
  const OwnedNm weight(*device, DType::f32, 100, 192, {2, 4}, 1);
  const OwnedTensor x = random_tensor(*device, DType::f32, {300, 192}, 2);
  const OwnedTensor all = random_tensor(*device, DType::f32, {300, 100}, 3);
  const OwnedTensor some = random_tensor(*device, DType::f32, {50, 100}, 4);
  nm_matmul(*device, {.y = all, .x = x, .weight = weight.view}, GetParam().target);
  nm_matmul(*device, {.y = some, .x = x.view().slice(211, 50), .weight = weight.view}, GetParam().target);
  EXPECT_TRUE(testing::same_bytes(some, all.view().slice(211, 50)));
}

TEST_P(EveryTarget, NothingIsAllocatedOnceAShapeIsKnown) {
  const auto device = Device::cpu();
  const OwnedNm weight(*device, DType::bf16, 64, 128, {2, 4}, 1);
  const OwnedTensor x = random_tensor(*device, DType::bf16, {64, 128}, 2);
  const OwnedTensor y = random_tensor(*device, DType::bf16, {64, 64}, 3);
  nm_matmul(*device, {.y = y, .x = x, .weight = weight.view}, GetParam().target);
  const std::int64_t allocations = device->memory().allocations();
  nm_matmul(*device, {.y = y, .x = x, .weight = weight.view}, GetParam().target);
  EXPECT_EQ(device->memory().allocations(), allocations);
}

INSTANTIATE_TEST_SUITE_P(NmMatmul, EveryTarget, ::testing::ValuesIn(targets()),
                         [](const auto& instance) { return instance.param.name; });

TEST(NmMatmul, RefusesOperandsThatDoNotFit) {
  const auto device = Device::cpu();
  const OwnedNm weight(*device, DType::f32, 8, 16, {2, 4}, 1);
  const OwnedTensor x = random_tensor(*device, DType::f32, {3, 16}, 2);
  const OwnedTensor narrow = random_tensor(*device, DType::f32, {3, 12}, 2);
  const OwnedTensor half = random_tensor(*device, DType::bf16, {3, 16}, 2);
  const OwnedTensor y = random_tensor(*device, DType::f32, {3, 8}, 3);
  const OwnedTensor half_y = random_tensor(*device, DType::bf16, {3, 8}, 3);
  EXPECT_THROW(nm_matmul(*device, {.y = y, .x = narrow, .weight = weight.view}), Error);
  EXPECT_THROW(nm_matmul(*device, {.y = y, .x = half, .weight = weight.view}), Error);
  EXPECT_THROW(nm_matmul(*device, {.y = half_y, .x = x, .weight = weight.view}), Error);
  NmMatrix wrong = weight.view;
  wrong.pattern = {1, 4};
  EXPECT_THROW(nm_matmul(*device, {.y = y, .x = x, .weight = wrong}), Error);
}

}  // namespace
}  // namespace filigree
