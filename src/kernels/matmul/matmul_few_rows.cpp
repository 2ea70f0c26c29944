#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/matmul/matmul_few_rows.cpp"
#include <hwy/foreach_target.h>
// After foreach_target, so that it is included once for each instruction set.
#include "core/parallel.h"
#include "kernels/matmul/matmul_few_rows.h"
#include "kernels/vector-inl.h"

// Every element of y is a dot product of two contiguous rows. A group of weight rows is multiplied with all rows of a
// while it passes by, with enough sums at once (4 to 8) to hide the latency of the addition; a itself, at most 8 rows,
// is widened to fp32 once and stays in the first-level cache.

HWY_BEFORE_NAMESPACE();
namespace filigree::HWY_NAMESPACE {
namespace {

template <int kRows, int kWeights, typename T, typename Y>
void dot_rows(const MatmulArgs& args, const float* a, std::int64_t first) {
  const std::int64_t depth = args.b.shape[1], columns = args.b.shape[0];
  const T* weights = args.b.as<T>() + first * depth;
  FloatVector sums[kWeights][kRows];
  for (auto& row : sums)
    for (FloatVector& sum : row) sum = splat(0.0f);
  for_vectors(depth, [&](std::int64_t k, auto part) HWY_ATTR {
    for (int n = 0; n < kWeights; ++n) {
      const FloatVector weight = load(weights + n * depth + k, part);
      for (int m = 0; m < kRows; ++m) sums[n][m] = hn::MulAdd(weight, load(a + m * depth + k, part), sums[n][m]);
    }
  });
  for (int n = 0; n < kWeights; ++n)
    for (int m = 0; m < kRows; ++m) {
      Y& y = args.y.as<Y>()[m * columns + first + n];
      float value = args.scale * hn::GetLane(hn::SumOfLanes(FloatTag(), sums[n][m]));
      if (!args.bias.empty()) value += args.bias.as<float>()[first + n];
      if (args.accumulate) value += static_cast<float>(y);
      y = Y(value);
    }
}

template <int kRows, typename T, typename Y>
void multiply(const MatmulArgs& args, const float* a) {
  constexpr int kWeights = kRows <= 2 ? 4 : kRows <= 4 ? 2 : 1;
  parallel_for(args.b.shape[0], 16, [&](std::int64_t begin, std::int64_t end) HWY_ATTR {
    std::int64_t n = begin;
    for (; n + kWeights <= end; n += kWeights) dot_rows<kRows, kWeights, T, Y>(args, a, n);
    for (; n < end; ++n) dot_rows<kRows, 1, T, Y>(args, a, n);
  });
}

template <typename T, typename Y>
void multiply_any(Device& device, const MatmulArgs& args) {
  const std::int64_t count = args.a.count();
  const float* a = nullptr;
  if constexpr (sizeof(T) == sizeof(float)) {
    a = args.a.as<float>();
  } else {
    auto* wide = static_cast<float*>(device.scratch(Scratch::kernel, static_cast<std::size_t>(count) * sizeof(float)));
    for_vectors(count,
                [&](std::int64_t i, auto part) HWY_ATTR { store(load(args.a.as<T>() + i, part), wide + i, part); });
    a = wide;
  }
  switch (args.y.shape[0]) {
    case 1:
      return multiply<1, T, Y>(args, a);
    case 2:
      return multiply<2, T, Y>(args, a);
    case 3:
      return multiply<3, T, Y>(args, a);
    case 4:
      return multiply<4, T, Y>(args, a);
    case 5:
      return multiply<5, T, Y>(args, a);
    case 6:
      return multiply<6, T, Y>(args, a);
    case 7:
      return multiply<7, T, Y>(args, a);
    default:
      return multiply<8, T, Y>(args, a);
  }
}

void few_rows(Device& device, const MatmulArgs& args) {
  if (args.a.dtype == DType::f32) return multiply_any<float, float>(device, args);
  with_compute_type(args.y.dtype, [&]<typename Y>() { multiply_any<bf16, Y>(device, args); });
}

}  // namespace
}  // namespace filigree::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace filigree {

HWY_EXPORT(few_rows);

bool takes_matmul_few_rows(const MatmulArgs& args) {
  // Beyond 4 rows of bf16 the arithmetic takes longer than the reading, and a library with bf16 instructions less.
  const std::int64_t most = args.a.dtype == DType::bf16 ? 4 : 8;
  return args.y.shape[0] <= most && args.transpose_b && !args.transpose_a;
}

void matmul_few_rows(Device& device, const MatmulArgs& args) {
  HWY_DYNAMIC_DISPATCH(few_rows)(device, args);
}

}  // namespace filigree
#endif  // HWY_ONCE
