#include "kernels/adamw/adamw.h"

#include <bit>
#include <cmath>

#include "kernels/kernel_test.h"

namespace filigree::testing {
namespace {

struct State {
  OwnedTensor values, master, gradient, m, v;

  State(Device& device, DType dtype, std::int64_t count)
      : values(random_tensor(device, dtype, {count}, 1)),
        master(random_tensor(device, DType::f32, {count}, 1)),
        gradient(random_tensor(device, DType::f32, {count}, 2, 1e-2)),
        m(random_tensor(device, DType::f32, {count}, 3, 1e-2)),
        v(random_tensor(device, DType::f32, {count}, 4, 1e-4)) {
    for (std::int64_t i = 0; i < count; ++i) v.view().as<float>()[i] = std::abs(v.view().as<float>()[i]);
    if (count > 2) v.view().as<float>()[1] = gradient.view().as<float>()[1] = m.view().as<float>()[1] = 0.0f;
  }
  // The part [begin, end) as a parameter of its own.
  AdamWArgs part(std::int64_t begin, std::int64_t end) const {
    const bool fp32 = values.view().dtype == DType::f32;
    const Tensor& own = fp32 ? master.view() : values.view();
    return {.values = own.slice(begin, end - begin),
            .master = master.view().as<float>() + begin,
            .gradient = gradient.view().as<float>() + begin,
            .m = m.view().as<float>() + begin,
            .v = v.view().as<float>() + begin,
            .count = end - begin,
            .step = {.lr = 3e-3f, .clip = 0.7f, .bias_correction1 = 0.271f, .bias_correction2 = 0.142625f},
            .decay = 0.1f};
  }
};

// The header's formula in plain fp32 operations, one rounding each.
struct Expected {
  float p, m, v;
};
Expected reference(const AdamWArgs& args, float p, float gradient, float m, float v) {
  const float g = gradient * args.step.clip;
  m = args.beta1 * m + (1.0f - args.beta1) * g;
  v = args.beta2 * v + (1.0f - args.beta2) * (g * g);
  p = p - args.step.lr * args.decay * p;
  p = p - args.step.lr * (m / args.step.bias_correction1) / (std::sqrt(v / args.step.bias_correction2) + args.epsilon);
  return {p, m, v};
}

class AdamWTest : public ::testing::TestWithParam<DType> {};

TEST_P(AdamWTest, EqualsTheFormulaBitForBitWhereverItIsCut) {
  const auto device = Device::cpu();
  constexpr std::int64_t kCount = 3 * 4096 + 777;
  for (const std::int64_t step : {kCount, std::int64_t{1}, std::int64_t{13}, std::int64_t{1000}, std::int64_t{4097}}) {
    State state(*device, GetParam(), kCount);
    const State before(*device, GetParam(), kCount);
    for (std::int64_t begin = 0; begin < kCount; begin += step)
      adamw(*device, state.part(begin, std::min(begin + step, kCount)));
    for (std::int64_t i = 0; i < kCount; ++i) {
      const auto at = [i](const OwnedTensor& tensor) { return tensor.view().as<float>()[i]; };
      const Expected expected =
          reference(before.part(0, kCount), at(before.master), at(before.gradient), at(before.m), at(before.v));
      ASSERT_EQ(std::bit_cast<std::uint32_t>(at(state.m)), std::bit_cast<std::uint32_t>(expected.m)) << i;
      ASSERT_EQ(std::bit_cast<std::uint32_t>(at(state.v)), std::bit_cast<std::uint32_t>(expected.v)) << i;
      ASSERT_EQ(std::bit_cast<std::uint32_t>(at(state.master)), std::bit_cast<std::uint32_t>(expected.p)) << i;
      if (GetParam() == DType::bf16) {
        ASSERT_EQ(state.values.view().as<bf16>()[i].bits, bf16(expected.p).bits) << i;
      }
    }
  }
}

TEST_P(AdamWTest, IsIndependentOfTheThreadCount) {
  const auto device = Device::cpu();
  std::unique_ptr<State> state = std::make_unique<State>(*device, GetParam(), 20000);
  const OwnedTensor result = random_tensor(*device, DType::f32, {20000}, 9);
  expect_same_for_any_thread_count(result, [&] {
    state = std::make_unique<State>(*device, GetParam(), 20000);
    adamw(*device, state->part(0, 20000));
    std::copy_n(state->master.view().as<float>(), 20000, result.view().as<float>());
  });
}

INSTANTIATE_TEST_SUITE_P(Types, AdamWTest, ::testing::Values(DType::f32, DType::bf16));

TEST(AdamW, FollowsTheFormulaInDoubleOverSteps) {
  const auto device = Device::cpu();
  State state(*device, DType::f32, 5);
  AdamWArgs args = state.part(0, 5);
  std::fill_n(args.m, 5, 0.0f);
  std::fill_n(args.v, 5, 0.0f);
  const std::vector<double> gradient = values_of(state.gradient);
  std::vector<double> p = values_of(state.master), m(5, 0.0), v(5, 0.0);
  for (int t = 1; t <= 20; ++t) {
    args.step.bias_correction1 = static_cast<float>(1.0 - std::pow(0.9, t));
    args.step.bias_correction2 = static_cast<float>(1.0 - std::pow(0.95, t));
    adamw(*device, args);
    for (std::size_t i = 0; i < 5; ++i) {
      const double g = gradient[i] * 0.7;
      m[i] = 0.9 * m[i] + 0.1 * g;
      v[i] = 0.95 * v[i] + 0.05 * g * g;
      p[i] -= 3e-3 * 0.1 * p[i];
      p[i] -= 3e-3 * (m[i] / (1 - std::pow(0.9, t))) / (std::sqrt(v[i] / (1 - std::pow(0.95, t))) + 1e-8);
    }
  }
  expect_close(state.master, p, 20, 1.0, "p after 20 steps");
}

TEST(AdamW, RejectsAnFp32MasterOfItsOwn) {
  const auto device = Device::cpu();
  const State state(*device, DType::f32, 4);
  AdamWArgs args = state.part(0, 4);
  args.values = state.values;
  EXPECT_THROW(adamw(*device, args), Error);
}

}  // namespace
}  // namespace filigree::testing
