#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/adamw/adamw_cpu.cpp"
#include <hwy/foreach_target.h>
// After foreach_target, so that it is included once for each instruction set.
#include "core/parallel.h"
#include "kernels/adamw/adamw.h"
#include "kernels/vector-inl.h"

// Bound by memory: 28 bytes an element in fp32 (master, m and v read and written, the gradient read), 30 with bf16
// values. The two divisions and the root by vectors of 16 cost about 4 cycles an element and hide behind that.

HWY_BEFORE_NAMESPACE();
namespace filigree::HWY_NAMESPACE {
namespace {

template <typename T>
void update(const AdamWArgs& args) {
  T* values = args.values.as<T>();
  const FloatVector clip = splat(args.step.clip);
  const FloatVector beta1 = splat(args.beta1), rest1 = splat(1.0f - args.beta1);
  const FloatVector beta2 = splat(args.beta2), rest2 = splat(1.0f - args.beta2);
  const FloatVector correction1 = splat(args.step.bias_correction1), correction2 = splat(args.step.bias_correction2);
  const FloatVector lr = splat(args.step.lr), shrink = splat(args.step.lr * args.decay), epsilon = splat(args.epsilon);
  // A range that a thread takes is a whole number of vectors, but its place does not matter: every lane sees the same
  // operations in the same order, and so does a padded rest.
  parallel_for(args.count, 4096, [&](std::int64_t begin, std::int64_t end) HWY_ATTR {
    for_vectors(end - begin, [&](std::int64_t offset, auto part) HWY_ATTR {
      const std::int64_t i = begin + offset;
      const FloatVector g = hn::Mul(load(args.gradient + i, part), clip);
      const FloatVector m = hn::Add(hn::Mul(beta1, load(args.m + i, part)), hn::Mul(rest1, g));
      const FloatVector v = hn::Add(hn::Mul(beta2, load(args.v + i, part)), hn::Mul(rest2, hn::Mul(g, g)));
      FloatVector p = load(args.master + i, part);
      p = hn::Sub(p, hn::Mul(shrink, p));
      const FloatVector root = hn::Add(hn::Sqrt(hn::Div(v, correction2)), epsilon);
      p = hn::Sub(p, hn::Div(hn::Mul(lr, hn::Div(m, correction1)), root));
      store(m, args.m + i, part);
      store(v, args.v + i, part);
      store(p, args.master + i, part);
      if constexpr (sizeof(T) == sizeof(bf16)) store(p, values + i, part);
    });
  });
}

void update_any(const AdamWArgs& args) {
  with_compute_type(args.values.dtype, [&]<typename T>() { update<T>(args); });
}

}  // namespace
}  // namespace filigree::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace filigree {

HWY_EXPORT(update_any);

void adamw(Device& device, std::span<const AdamWArgs> parameters) {
  for (const AdamWArgs& args : parameters) {
    require(args.values.count() == args.count, "adamw: count differs from the values' own");
    require(args.values.dtype != DType::f32 || args.values.data == args.master,
            "adamw: fp32 values are their own master");
  }
  if constexpr (kBuiltWithCuda)
    if (device.is_cuda()) return cuda::adamw(device, parameters);
  for (const AdamWArgs& args : parameters)
    if (args.count > 0) HWY_DYNAMIC_DISPATCH(update_any)(args);
}

}  // namespace filigree
#endif  // HWY_ONCE
