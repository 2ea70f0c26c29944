#include "kernels/elementwise/elementwise.h"

#include <vector>

#include "core/parallel.h"

namespace filigree {
namespace {

constexpr std::int64_t kChunk = 4096;  // fixed: sums do not depend on the thread count

template <typename Y, typename X, typename Operation>
void apply(const Tensor& y, const Tensor& x, Operation operation) {
  auto* out = y.as<Y>();
  const auto* in = x.as<X>();
  parallel_for(y.count(), kChunk, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      out[i] = Y(operation(static_cast<float>(out[i]), static_cast<float>(in[i])));
  });
}

template <typename Operation>
void apply_any(const Tensor& y, const Tensor& x, Operation operation) {
  require(y.count() == x.count(), "elementwise: counts differ");
  with_compute_type(
      y.dtype, [&]<typename Y>() { with_compute_type(x.dtype, [&]<typename X>() { apply<Y, X>(y, x, operation); }); });
}

}  // namespace

void add(Device&, const Tensor& y, const Tensor& x) {
  apply_any(y, x, [](float a, float b) { return a + b; });
}

void convert(Device&, const Tensor& y, const Tensor& x) {
  apply_any(y, x, [](float, float b) { return b; });
}

void scale(Device&, const Tensor& y, float factor) {
  apply_any(y, y, [factor](float a, float) { return a * factor; });
}

void fill(Device&, const Tensor& y, float value) {
  with_compute_type(y.dtype, [&]<typename Y>() {
    auto* out = y.as<Y>();
    parallel_for(y.count(), kChunk, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) out[i] = Y(value);
    });
  });
}

void add_column_sums(Device&, const Tensor& sum, const Tensor& x) {
  const std::int64_t columns = sum.count();
  require(x.shape[-1] == columns, "add_column_sums: widths differ");
  const std::int64_t rows = columns == 0 ? 0 : x.count() / columns;
  auto* out = sum.as<float>();
  with_compute_type(x.dtype, [&]<typename X>() {
    const auto* in = x.as<X>();
    // Each thread owns columns and walks all rows in order; 64 columns are one or two cache lines of a row.
    parallel_for(columns, 64, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t column = begin; column < end; ++column)
          out[column] += static_cast<float>(in[row * columns + column]);
    });
  });
}

double sum_of_squares(Device& device, const Tensor& x) {
  const std::int64_t count = x.count();
  const std::int64_t chunks = (count + kChunk - 1) / kChunk;
  auto* partial =
      static_cast<double*>(device.scratch(Scratch::kernel, static_cast<std::size_t>(chunks) * sizeof(double)));
  with_compute_type(x.dtype, [&]<typename X>() {
    const auto* in = x.as<X>();
    parallel_for(chunks, 1, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t chunk = first; chunk < last; ++chunk) {
        const std::int64_t end = std::min(count, (chunk + 1) * kChunk);
        double sum = 0.0;
        for (std::int64_t i = chunk * kChunk; i < end; ++i) {
          const auto value = static_cast<double>(static_cast<float>(in[i]));
          sum += value * value;
        }
        partial[chunk] = sum;
      }
    });
  });
  double total = 0.0;
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) total += partial[chunk];
  return total;
}

}  // namespace filigree
