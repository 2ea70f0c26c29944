#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/selection/selected_adamw_cpu.cpp"
#include <hwy/foreach_target.h>
// After foreach_target, so that it is included once for each instruction set.
#include "core/parallel.h"
#include "kernels/selection/selected_adamw.h"
#include "kernels/selection/selection-inl.h"

// Bound by memory, as adamw_cpu.cpp, which reads 4 bytes of gradient an entry where this reads 4 of a chosen one. A
// group's packed gradients are spread out in a small array first.

HWY_BEFORE_NAMESPACE();
namespace filigree::HWY_NAMESPACE {
namespace {

// gradients (kSelectionGroup): the packed ones of a group at their places, 0 elsewhere.
template <typename T>
void spread_group(float* gradients, const SelectedAdamWArgs& args, std::int64_t group) {
  std::fill(gradients, gradients + kSelectionGroup, 0.0f);
  const T* const packed = args.packed.as<T>();
  for_chosen_of_group(args.chosen, group, [&](std::int64_t i, std::int64_t place) HWY_ATTR {
    gradients[i] = static_cast<float>(packed[place]);
  });
}

template <typename T>
void update(const SelectedAdamWArgs& args) {
  const AdamWArgs& adamw = args.adamw;
  T* const values = adamw.values.as<T>();
  const FloatVector clip = splat(adamw.step.clip), extra_factor = splat(args.extra_factor);
  const FloatVector beta1 = splat(adamw.beta1), rest1 = splat(1.0f - adamw.beta1);
  const FloatVector beta2 = splat(adamw.beta2), rest2 = splat(1.0f - adamw.beta2);
  const FloatVector window = splat(args.beta2_window), rest_window = splat(1.0f - args.beta2_window);
  const FloatVector correction1 = splat(adamw.step.bias_correction1);
  const FloatVector correction2 = splat(adamw.step.bias_correction2);
  const FloatVector lr = splat(adamw.step.lr), shrink = splat(adamw.step.lr * adamw.decay);
  const FloatVector decay = splat(adamw.decay), epsilon = splat(adamw.epsilon);
  parallel_for(selection_groups(adamw.count), 4, [&](std::int64_t first, std::int64_t last) HWY_ATTR {
    HWY_ALIGN float unpacked[kSelectionGroup];
    for (std::int64_t group = first; group < last; ++group) {
      const std::int64_t begin = group * kSelectionGroup, end = std::min(adamw.count, begin + kSelectionGroup);
      const float* gradients = unpacked;
      if (args.packed.empty())
        gradients = adamw.gradient + begin;
      else
        with_compute_type(args.packed.dtype, [&]<typename P>() { spread_group<P>(unpacked, args, group); });
      for_vectors(end - begin, [&](std::int64_t offset, auto part) HWY_ATTR {
        const std::int64_t i = begin + offset;
        const hn::Mask<FloatTag> chosen = lanes_chosen(args.chosen, i);
        const FloatVector old_m = load(adamw.m + i, part), old_v = load(adamw.v + i, part);
        const FloatVector old_p = load(adamw.master + i, part);
        const FloatVector g = hn::Mul(load(gradients + offset, part), clip);
        FloatVector sum = g;
        if (args.extra) sum = hn::Add(g, hn::Mul(extra_factor, load(args.extra + i, part)));
        const FloatVector in_v = args.extra_in_v ? sum : g;
        const FloatVector square = hn::Mul(in_v, in_v);
        FloatVector m = hn::Add(hn::Mul(beta1, old_m), hn::Mul(rest1, sum));
        FloatVector v = hn::Add(hn::Mul(beta2, old_v), hn::Mul(rest2, square));
        if (args.others == OtherEntries::hold) v = hn::IfThenElse(chosen, v, old_v);
        if (args.others == OtherEntries::window)
          v = hn::IfThenElse(chosen, v, hn::Add(hn::Mul(window, old_v), hn::Mul(rest_window, square)));
        if (args.others == OtherEntries::frozen) {
          m = hn::IfThenElse(chosen, m, old_m);
          v = hn::IfThenElse(chosen, v, old_v);
        }
        const FloatVector root = hn::Add(hn::Sqrt(hn::Div(v, correction2)), epsilon);
        const FloatVector mean = hn::Div(m, correction1);
        FloatVector p = hn::Sub(old_p, hn::Mul(shrink, old_p));
        p = hn::Sub(p, hn::Div(hn::Mul(lr, mean), root));
        if (args.others == OtherEntries::frozen) p = hn::IfThenElse(chosen, p, old_p);
        store(m, adamw.m + i, part);
        store(v, adamw.v + i, part);
        store(p, adamw.master + i, part);
        if constexpr (sizeof(T) == sizeof(bf16)) store(p, values + i, part);
        if (args.direction) store(hn::Add(hn::Div(mean, root), hn::Mul(decay, old_p)), args.direction + i, part);
      });
    }
  });
}

void update_any(const SelectedAdamWArgs& args) {
  with_compute_type(args.adamw.values.dtype, [&]<typename T>() { update<T>(args); });
}

}  // namespace
}  // namespace filigree::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace filigree {

HWY_EXPORT(update_any);

void selected_adamw(Device& device, std::span<const SelectedAdamWArgs> parameters) {
  for (const SelectedAdamWArgs& args : parameters) {
    require(args.adamw.values.count() == args.adamw.count, "selected_adamw: count differs from the values' own");
    require(args.chosen.empty() || args.chosen.count == args.adamw.count,
            "selected_adamw: count differs from the selection's");
    require(args.packed.empty() || !args.chosen.empty(), "selected_adamw: packed gradients need a selection");
  }
  if constexpr (kBuiltWithCuda)
    if (device.is_cuda()) return cuda::selected_adamw(device, parameters);
  for (const SelectedAdamWArgs& args : parameters)
    if (args.adamw.count > 0) HWY_DYNAMIC_DISPATCH(update_any)(args);
}

}  // namespace filigree
#endif  // HWY_ONCE
