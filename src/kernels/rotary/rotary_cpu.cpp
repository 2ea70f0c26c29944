#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rotary/rotary_cpu.cpp"
#include <hwy/foreach_target.h>
// After foreach_target, so that it is included once for each instruction set.
#include <cmath>

#include "core/parallel.h"
#include "kernels/rotary/rotary.h"
#include "kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace filigree::HWY_NAMESPACE {
namespace {

template <typename T>
void turn(const RotaryArgs& args) {
  const std::int64_t size = args.table.shape[1];  // D
  const std::int64_t half = size / 2;
  const std::int64_t positions = args.qkv.shape[1];  // S
  const std::int64_t row_size = args.qkv.shape[2];   // (H + 2G) D
  const std::int64_t turned = args.heads + args.kv_heads;
  const FloatVector sign = splat(args.inverse ? -1.0f : 1.0f);
  T* qkv = args.qkv.as<T>();
  const float* table = args.table.as<float>();
  parallel_for(args.qkv.shape[0] * positions, 8, [&](std::int64_t begin, std::int64_t end) HWY_ATTR {
    for (std::int64_t token = begin; token < end; ++token) {
      const float* cosines = table + (args.start + token % positions) * size;  // (D/2)
      const float* sines = cosines + half;                                     // (D/2)
      for (std::int64_t head = 0; head < turned; ++head) {
        T* lower = qkv + token * row_size + head * size;
        T* upper = lower + half;
        for_vectors(half, [&](std::int64_t i, auto part) HWY_ATTR {
          const FloatVector cosine = load(cosines + i, part);
          const FloatVector sine = hn::Mul(load(sines + i, part), sign);
          const FloatVector a = load(lower + i, part), b = load(upper + i, part);
          store(hn::NegMulAdd(b, sine, hn::Mul(a, cosine)), lower + i, part);
          store(hn::MulAdd(a, sine, hn::Mul(b, cosine)), upper + i, part);
        });
      }
    }
  });
}

void turn_any(const RotaryArgs& args) {
  with_compute_type(args.qkv.dtype, [&]<typename T>() { turn<T>(args); });
}

}  // namespace
}  // namespace filigree::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace filigree {

HWY_EXPORT(turn_any);

void rotary(Device& device, const RotaryArgs& args) {
  require(args.qkv.shape.rank() == 3 && args.table.shape.rank() == 2, "rotary: qkv is (B, S, (H + 2G)D), table (C, D)");
  const std::int64_t size = args.table.shape[1];
  require(size % 2 == 0 && args.qkv.shape[2] == (args.heads + 2 * args.kv_heads) * size,
          "rotary: heads and the table's width do not fit qkv");
  require(args.start >= 0 && args.start + args.qkv.shape[1] <= args.table.shape[0],
          "rotary: positions reach past the table");
  if (args.qkv.count() == 0) return;
  if constexpr (kBuiltWithCuda)
    if (device.is_cuda()) return cuda::rotary(device, args);
  HWY_DYNAMIC_DISPATCH(turn_any)(args);
}

void rotary_table(const Tensor& table, double base) {
  const std::int64_t size = table.shape[1];
  const std::int64_t half = size / 2;
  auto* out = table.as<float>();
  for (std::int64_t position = 0; position < table.shape[0]; ++position)
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle =
          static_cast<double>(position) * std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(size));
      out[position * size + i] = static_cast<float>(std::cos(angle));
      out[position * size + half + i] = static_cast<float>(std::sin(angle));
    }
}

}  // namespace filigree
#endif  // HWY_ONCE
