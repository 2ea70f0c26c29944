#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/elementwise/elementwise_cpu.cpp"
#include <hwy/foreach_target.h>
// After foreach_target, so that it is included once for each instruction set.
#include "core/parallel.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace filigree::HWY_NAMESPACE {
namespace {

constexpr std::int64_t kChunk = 4096;  // fixed: sums do not depend on the thread count

// y = operation(y, x)
template <typename Operation>
void apply(const Tensor& y, const Tensor& x, const Operation& operation) {
  with_compute_type(y.dtype, [&]<typename Y>() {
    with_compute_type(x.dtype, [&]<typename X>() {
      Y* out = y.as<Y>();
      const X* in = x.as<X>();
      parallel_for(y.count(), kChunk, [&](std::int64_t begin, std::int64_t end) HWY_ATTR {
        for_vectors(end - begin, [&](std::int64_t offset, auto part) HWY_ATTR {
          const std::int64_t i = begin + offset;
          store(operation(load(out + i, part), load(in + i, part)), out + i, part);
        });
      });
    });
  });
}

void add_to(const Tensor& y, const Tensor& x) {
  apply(y, x, [](FloatVector a, FloatVector b) HWY_ATTR { return hn::Add(a, b); });
}

void convert_to(const Tensor& y, const Tensor& x) {
  with_compute_type(y.dtype, [&]<typename Y>() {
    with_compute_type(x.dtype, [&]<typename X>() {
      Y* out = y.as<Y>();
      const X* in = x.as<X>();
      parallel_for(y.count(), kChunk, [&](std::int64_t begin, std::int64_t end) HWY_ATTR {
        for_vectors(end - begin, [&](std::int64_t offset, auto part)
                                     HWY_ATTR { store(load(in + begin + offset, part), out + begin + offset, part); });
      });
    });
  });
}

void scale_by(const Tensor& y, float factor) {
  apply(y, y, [factor](FloatVector a, FloatVector) HWY_ATTR { return hn::Mul(a, splat(factor)); });
}

// Each thread owns columns and walks all rows in order, 8 rows at once for each vector of sums that it loads and
// stores.
void column_sums(const Tensor& sum, const Tensor& x) {
  const std::int64_t columns = sum.count(), rows = x.count() / columns;
  float* out = sum.as<float>();
  with_compute_type(x.dtype, [&]<typename X>() {
    const X* in = x.as<X>();
    parallel_for(columns, 64, [&](std::int64_t begin, std::int64_t end) HWY_ATTR {
      for (std::int64_t first = 0; first < rows; first += 8) {
        const std::int64_t last = std::min(rows, first + 8);
        for_vectors(end - begin, [&](std::int64_t offset, auto part) HWY_ATTR {
          FloatVector total = load(out + begin + offset, part);
          for (std::int64_t row = first; row < last; ++row)
            total = hn::Add(total, load(in + row * columns + begin + offset, part));
          store(total, out + begin + offset, part);
        });
      }
    });
  });
}

// partial (chunks): the sum of squares of each chunk, in double. An fp32 square is exact in double.
void chunk_squares(double* partial, const Tensor& x) {
  const std::int64_t count = x.count();
  with_compute_type(x.dtype, [&]<typename X>() {
    const X* in = x.as<X>();
    parallel_for((count + kChunk - 1) / kChunk, 1, [&](std::int64_t first, std::int64_t last) HWY_ATTR {
      const hn::ScalableTag<double> doubles;
      const hn::Rebind<float, decltype(doubles)> halves;
      const auto lanes = static_cast<std::int64_t>(hn::Lanes(doubles));
      for (std::int64_t chunk = first; chunk < last; ++chunk) {
        auto sum = hn::Zero(doubles);
        const X* begin = in + chunk * kChunk;
        for_vectors(std::min(kChunk, count - chunk * kChunk), [&](std::int64_t i, auto part) HWY_ATTR {
          HWY_ALIGN float values[kLanes];
          store(load(begin + i, part), values);
          for (std::int64_t lane = 0; lane < kLanes; lane += lanes) {
            const auto value = hn::PromoteTo(doubles, hn::LoadU(halves, values + lane));
            sum = hn::MulAdd(value, value, sum);
          }
        });
        partial[chunk] = hn::GetLane(hn::SumOfLanes(doubles, sum));
      }
    });
  });
}

}  // namespace
}  // namespace filigree::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace filigree {

HWY_EXPORT(add_to);
HWY_EXPORT(convert_to);
HWY_EXPORT(scale_by);
HWY_EXPORT(column_sums);
HWY_EXPORT(chunk_squares);

void add(Device& device, const Tensor& y, const Tensor& x) {
  require(y.count() == x.count(), "add: counts differ");
  if constexpr (kBuiltWithCuda)
    if (device.is_cuda()) return cuda::add(device, y, x);
  HWY_DYNAMIC_DISPATCH(add_to)(y, x);
}

void convert(Device& device, const Tensor& y, const Tensor& x) {
  require(y.count() == x.count(), "convert: counts differ");
  if constexpr (kBuiltWithCuda)
    if (device.is_cuda()) return cuda::convert(device, y, x);
  HWY_DYNAMIC_DISPATCH(convert_to)(y, x);
}

void scale(Device& device, const Tensor& y, float factor) {
  if constexpr (kBuiltWithCuda)
    if (device.is_cuda()) return cuda::scale(device, y, factor);
  HWY_DYNAMIC_DISPATCH(scale_by)(y, factor);
}

void fill(Device& device, const Tensor& y, float value) {
  if constexpr (kBuiltWithCuda)
    if (device.is_cuda()) return cuda::fill(device, y, value);
  with_compute_type(y.dtype, [&]<typename T>() {
    T* out = y.as<T>();
    parallel_for(y.count(), 4096,
                 [&](std::int64_t begin, std::int64_t end) { std::fill(out + begin, out + end, T(value)); });
  });
}

void add_column_sums(Device& device, const Tensor& sum, const Tensor& x) {
  require(x.shape[-1] == sum.count(), "add_column_sums: widths differ");
  if (sum.count() == 0) return;
  if constexpr (kBuiltWithCuda)
    if (device.is_cuda()) return cuda::add_column_sums(device, sum, x);
  HWY_DYNAMIC_DISPATCH(column_sums)(sum, x);
}

double sum_of_squares(Device& device, std::span<const Tensor> tensors) {
  if constexpr (kBuiltWithCuda)
    if (device.is_cuda()) return cuda::sum_of_squares(device, tensors);
  double total = 0.0;
  for (const Tensor& x : tensors) {
    const std::int64_t chunks = (x.count() + 4095) / 4096;
    auto* partial =
        static_cast<double*>(device.scratch(Scratch::kernel, static_cast<std::size_t>(chunks) * sizeof(double)));
    HWY_DYNAMIC_DISPATCH(chunk_squares)(partial, x);
    double sum = 0.0;
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) sum += partial[chunk];
    total += sum;
  }
  return total;
}

double sum(Device& device, const Tensor& x) {
  if constexpr (kBuiltWithCuda)
    if (device.is_cuda()) return cuda::sum(device, x);
  const auto* values = x.as<float>();
  double total = 0.0;
  for (std::int64_t i = 0; i < x.count(); ++i) total += static_cast<double>(values[i]);
  return total;
}

}  // namespace filigree
#endif  // HWY_ONCE
