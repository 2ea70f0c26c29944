#include <algorithm>

#include "kernels/norm/norm.h"
#include "kernels/norm/norm_rows.cuh"

// Bound by memory: x and the residual are read once, s and y written once. A block walks over some rows with the gain
// and bias of its channels in registers. The variance is taken around the mean, of the row in registers: nothing is
// lost where the mean is large, and nothing is read again.

namespace filigree::cuda {
namespace {

constexpr std::int64_t kBlockRows = 8;  // rows of a block at most: gain and bias are read once for them

template <typename T>
struct Forward {
  T* y;               // (T, C)
  T* sum;             // (T, C), null: s is not stored. May be x or residual
  float* mean;        // (T), or null
  float* rstd;        // (T), or null
  const T* x;         // (T, C)
  const T* residual;  // (T, C), or null
  const float* gain;  // (C)
  const float* bias;  // (C), or null
  std::int64_t rows, channels;
  float epsilon;
  bool layer;
};

// ---------------------------------------------------------------------------------------------------------- kernels

template <int kUnits, typename T>
__global__ __launch_bounds__(kRowThreads, kUnits == 1 ? 4
                                          : kUnits < 4
                                              ? 2
                                              : 1) void norm_forward_kernel(const __grid_constant__ Forward<T> args,
                                                                            std::int64_t block_rows) {
  let_next_begin();
  __shared__ float shared[RowSums<1>::kFloats];
  RowSums<1> sums(shared);
  const auto units = static_cast<int>(args.channels / kUnit);
  const float inverse = 1.0f / static_cast<float>(args.channels);
  Floats<kUnit> gain[kUnits], bias[kUnits];
  bool mine[kUnits];
  int channel[kUnits];
#pragma unroll
  for (int u = 0; u < kUnits; ++u) {
    const auto unit = static_cast<int>(threadIdx.x + u * blockDim.x);
    mine[u] = unit < units;
    channel[u] = unit * kUnit;
    gain[u] = bias[u] = {};
    if (!mine[u]) continue;
    gain[u] = load<kUnit>(args.gain + channel[u]);
    if (args.bias) bias[u] = load<kUnit>(args.bias + channel[u]);
  }
  const std::int64_t first = blockIdx.x * block_rows, last = min(first + block_rows, args.rows);
  for (std::int64_t row = first; row < last; ++row) {
    const std::int64_t at = row * args.channels;
    Floats<kUnit> s[kUnits], added[kUnits];
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      s[u] = added[u] = {};
      if (!mine[u]) continue;
      s[u] = load<kUnit>(args.x + at + channel[u]);
      if (args.residual) added[u] = load<kUnit>(args.residual + at + channel[u]);
    }
    float total[1] = {};
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      if (args.residual)
#pragma unroll
        for (int i = 0; i < kUnit; ++i) s[u].values[i] = rounded<T>(s[u].values[i] + added[u].values[i]);
      if (mine[u] && args.sum) store(args.sum + at + channel[u], s[u]);
#pragma unroll
      for (int i = 0; i < kUnit; ++i) total[0] += s[u].values[i];
    }
    float mean = 0.0f;
    if (args.layer) {
      sums.sum(total);
      mean = inverse * total[0];
    }
    float squares[1] = {};
#pragma unroll
    for (int u = 0; u < kUnits; ++u)
#pragma unroll
      for (int i = 0; i < kUnit; ++i) {
        s[u].values[i] -= mean;
        if (mine[u]) squares[0] += s[u].values[i] * s[u].values[i];
      }
    sums.sum(squares);
    const float rstd = 1.0f / sqrtf(squares[0] * inverse + args.epsilon);
    if (threadIdx.x == 0) {
      if (args.mean) args.mean[row] = mean;
      if (args.rstd) args.rstd[row] = rstd;
    }
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      if (!mine[u]) continue;
#pragma unroll
      for (int i = 0; i < kUnit; ++i)
        s[u].values[i] = fmaf(s[u].values[i] * rstd, gain[u].values[i], bias[u].values[i]);
      store(args.y + at + channel[u], s[u]);
    }
  }
}

// Any width and alignment: a block a row, one channel at a time. What a thread stored of s it reads back itself.
template <typename T>
__global__ __launch_bounds__(kRowThreads) void norm_forward_any_kernel(const __grid_constant__ Forward<T> args) {
  __shared__ float shared[RowSums<1>::kFloats];
  RowSums<1> sums(shared);
  const float inverse = 1.0f / static_cast<float>(args.channels);
  const std::int64_t at = blockIdx.x * args.channels;
  const T* s = args.sum ? args.sum + at : args.x + at;
  float total[1] = {};
  for (std::int64_t i = threadIdx.x; i < args.channels; i += kRowThreads) {
    float value = to_float(args.x[at + i]);
    if (args.residual) value = rounded<T>(value + to_float(args.residual[at + i]));
    if (args.sum) args.sum[at + i] = from_float<T>(value);
    total[0] += value;
  }
  float mean = 0.0f;
  if (args.layer) {
    sums.sum(total);
    mean = inverse * total[0];
  }
  float squares[1] = {};
  for (std::int64_t i = threadIdx.x; i < args.channels; i += kRowThreads) {
    const float off = to_float(s[i]) - mean;
    squares[0] += off * off;
  }
  sums.sum(squares);
  const float rstd = 1.0f / sqrtf(squares[0] * inverse + args.epsilon);
  if (threadIdx.x == 0) {
    if (args.mean) args.mean[blockIdx.x] = mean;
    if (args.rstd) args.rstd[blockIdx.x] = rstd;
  }
  for (std::int64_t i = threadIdx.x; i < args.channels; i += kRowThreads)
    args.y[at + i] = from_float<T>(fmaf((to_float(s[i]) - mean) * rstd, args.gain[i], args.bias ? args.bias[i] : 0.0f));
}

}  // namespace

// --------------------------------------------------------------------------------------------------------- launcher

void norm_forward(Device& device, const NormForwardArgs& args) {
  const bool keeps_sum = !args.sum.empty() && (!args.residual.empty() || args.sum.data != args.x.data);
  with_device_type(args.x.dtype, [&]<typename T>() {
    const Forward<T> forward = {.y = static_cast<T*>(args.y.data),
                                .sum = keeps_sum ? static_cast<T*>(args.sum.data) : nullptr,
                                .mean = static_cast<float*>(args.mean.data),
                                .rstd = static_cast<float*>(args.rstd.data),
                                .x = static_cast<const T*>(args.x.data),
                                .residual = static_cast<const T*>(args.residual.data),
                                .gain = args.gain.as<float>(),
                                .bias = static_cast<const float*>(args.bias.data),
                                .rows = args.x.count() / args.gain.count(),
                                .channels = args.gain.count(),
                                .epsilon = args.epsilon,
                                .layer = args.kind == NormKind::layer};
    const RowLayout layout = row_layout(
        forward.channels, aligned({forward.y, forward.sum, forward.x, forward.residual, forward.gain, forward.bias}));
    if (layout.units == 0) {
      norm_forward_any_kernel<T>
          <<<static_cast<unsigned int>(forward.rows), layout.threads, 0, device.stream()>>>(forward);
      return;
    }
    // Few rows: rather more blocks.
    const std::int64_t block_rows =
        std::clamp<std::int64_t>(forward.rows / (16 * device.gpu().multiprocessors), 1, kBlockRows);
    with_units(layout.units, [&]<int kUnits>() {
      norm_forward_kernel<kUnits, T>
          <<<blocks_for(forward.rows, block_rows), layout.threads, 0, device.stream()>>>(forward, block_rows);
    });
  });
  check_launch();
}

}  // namespace filigree::cuda
