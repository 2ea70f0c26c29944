#include "kernels/selection/selected_adamw.h"

#include <bit>

#include "kernels/selection/selection_support.h"

namespace filigree::testing {
namespace {

struct State {
  OwnedTensor values, master, gradient, m, v, extra, direction;

  State(Device& device, DType dtype, std::int64_t count)
      : values(random_tensor(device, dtype, {count}, 1)),
        master(random_tensor(device, DType::f32, {count}, 1)),
        gradient(random_tensor(device, DType::f32, {count}, 2, 1e-2)),
        m(random_tensor(device, DType::f32, {count}, 3, 1e-2)),
        v(random_tensor(device, DType::f32, {count}, 4, 1e-4)),
        extra(random_tensor(device, DType::f32, {count}, 5, 1e-2)),
        direction(random_tensor(device, DType::f32, {count}, 6)) {
    for (std::int64_t i = 0; i < count; ++i) v.view().as<float>()[i] = std::abs(v.view().as<float>()[i]);
  }
  AdamWArgs adamw() const {
    const bool fp32 = values.view().dtype == DType::f32;
    return {.values = fp32 ? master.view() : values.view(),
            .master = master.view().as<float>(),
            .gradient = gradient.view().as<float>(),
            .m = m.view().as<float>(),
            .v = v.view().as<float>(),
            .count = values.view().count(),
            .step = {.lr = 3e-3f, .clip = 0.7f, .bias_correction1 = 0.271f, .bias_correction2 = 0.142625f},
            .decay = 0.1f};
  }
};

struct Expected {
  float p, m, v, direction;
};

// The header's formula for one entry, one rounding an operation.
Expected reference(const SelectedAdamWArgs& args, float p, float gradient, float m, float v, float extra, bool chosen) {
  const AdamWArgs& a = args.adamw;
  const float g = gradient * a.step.clip;
  const float sum = args.extra ? g + args.extra_factor * extra : g;
  const float in_v = args.extra_in_v ? sum : g;
  const bool ordinary = chosen || args.others == OtherEntries::decay;
  Expected next{p, m, v, 0.0f};
  if (ordinary || args.others != OtherEntries::frozen) {
    next.m = a.beta1 * m + (1.0f - a.beta1) * sum;
    if (ordinary) next.v = a.beta2 * v + (1.0f - a.beta2) * (in_v * in_v);
    if (!ordinary && args.others == OtherEntries::window)
      next.v = args.beta2_window * v + (1.0f - args.beta2_window) * (in_v * in_v);
    next.p = p - a.step.lr * a.decay * p;
    next.p = next.p -
             a.step.lr * (next.m / a.step.bias_correction1) / (std::sqrt(next.v / a.step.bias_correction2) + a.epsilon);
  }
  next.direction =
      (next.m / a.step.bias_correction1) / (std::sqrt(next.v / a.step.bias_correction2) + a.epsilon) + a.decay * p;
  return next;
}

struct Case {
  DType dtype, wire;
  OtherEntries others;
  bool packed, extra, extra_in_v;
};

void expect_formula(const Case& c, std::int64_t count, float density) {
  const auto device = Device::cpu();
  const State state(*device, c.dtype, count), before(*device, c.dtype, count);
  const OwnedSelection chosen = OwnedSelection::random(count, density, 3);
  const std::set<std::int64_t> entries = chosen.entries();
  const OwnedTensor packed = random_tensor(*device, c.wire, {chosen.before.back()}, 8, 1e-2);
  const std::vector<double> sent = values_of(packed);
  SelectedAdamWArgs args = {.adamw = state.adamw(),
                            .chosen = chosen.view,
                            .packed = c.packed ? packed.view() : Tensor{},
                            .extra = c.extra ? state.extra.view().as<float>() : nullptr,
                            .extra_factor = 0.3f,
                            .extra_in_v = c.extra_in_v,
                            .others = c.others,
                            .beta2_window = 0.8f,
                            .direction = state.direction.view().as<float>()};
  if (c.packed && sent.empty()) return;  // nothing is packed: an empty Tensor means the whole gradient
  selected_adamw(*device, {&args, 1});
  std::size_t place = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto at = [i](const OwnedTensor& tensor) { return tensor.view().as<float>()[i]; };
    const bool is_chosen = entries.contains(i);
    float gradient = at(before.gradient);
    if (c.packed) gradient = is_chosen ? static_cast<float>(sent[place++]) : 0.0f;
    const Expected expected =
        reference(args, at(before.master), gradient, at(before.m), at(before.v), at(before.extra), is_chosen);
    ASSERT_EQ(at(state.m), expected.m) << i;
    ASSERT_EQ(at(state.v), expected.v) << i;
    ASSERT_EQ(at(state.master), expected.p) << i;
    ASSERT_EQ(at(state.direction), expected.direction) << i;
    if (c.dtype == DType::bf16) {
      ASSERT_EQ(state.values.view().as<bf16>()[i].bits, bf16(expected.p).bits) << i;
    }
  }
}

TEST(SelectedAdamW, EqualsTheFormulaBitForBit) {
  for (const OtherEntries others :
       {OtherEntries::decay, OtherEntries::hold, OtherEntries::window, OtherEntries::frozen})
    for (const bool packed : {false, true})
      for (const int extra : {0, 1, 2})
        for (const DType dtype : {DType::f32, DType::bf16})
          for (const std::int64_t count : {1, 33, 1024, 3001})
            expect_formula({dtype, dtype, others, packed, extra > 0, extra == 2}, count, 0.4f);
}

TEST(SelectedAdamW, WithAllChosenGivesAdamWsBits) {
  const auto device = Device::cpu();
  const std::int64_t count = 5000;
  for (const OtherEntries others : {OtherEntries::decay, OtherEntries::hold, OtherEntries::frozen}) {
    const State plain(*device, DType::bf16, count), selected(*device, DType::bf16, count);
    const OwnedSelection all = OwnedSelection::random(count, 1.0f, 1);
    adamw(*device, plain.adamw());
    const OwnedTensor packed = random_tensor(*device, DType::f32, {count}, 2, 1e-2);
    const SelectedAdamWArgs args = {.adamw = selected.adamw(), .chosen = all.view, .packed = packed, .others = others};
    selected_adamw(*device, {&args, 1});
    EXPECT_EQ(values_of(selected.master), values_of(plain.master));
    EXPECT_EQ(values_of(selected.m), values_of(plain.m));
    EXPECT_EQ(values_of(selected.v), values_of(plain.v));
    EXPECT_EQ(values_of(selected.values), values_of(plain.values));
  }
}

TEST(SelectedAdamW, WritesTheDirectionOverItsGradient) {
  const auto device = Device::cpu();
  const State apart(*device, DType::f32, 3000), over(*device, DType::f32, 3000);
  SelectedAdamWArgs args = {.adamw = apart.adamw(), .direction = apart.direction.view().as<float>()};
  selected_adamw(*device, {&args, 1});
  args = {.adamw = over.adamw(), .direction = over.gradient.view().as<float>()};
  selected_adamw(*device, {&args, 1});
  EXPECT_EQ(values_of(over.gradient), values_of(apart.direction));
}

TEST(SelectedAdamW, IsIndependentOfTheThreadCount) {
  const auto device = Device::cpu();
  const OwnedTensor result = random_tensor(*device, DType::f32, {20000}, 9);
  const OwnedSelection chosen = OwnedSelection::random(20000, 0.4f, 3);
  const OwnedTensor packed = random_tensor(*device, DType::f32, {chosen.before.back()}, 8);
  expect_same_for_any_thread_count(result, [&] {
    const State state(*device, DType::f32, 20000);
    const SelectedAdamWArgs args = {.adamw = state.adamw(), .chosen = chosen.view, .packed = packed};
    selected_adamw(*device, {&args, 1});
    std::copy_n(state.master.view().as<float>(), 20000, result.view().as<float>());
  });
}

}  // namespace
}  // namespace filigree::testing
