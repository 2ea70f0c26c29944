#include <algorithm>

#include "kernels/elementwise/column_sums_cuda.h"
#include "kernels/norm/norm.h"
#include "kernels/norm/norm_rows.cuh"

// With n = (s - mean) rstd and g = dy · gain:
//   ds += rstd (g - mean(g) - n mean(g n))    (RMSNorm: without the middle term)
//   dgain += sum over t of dy n               dbias += sum over t of dy
//
// Bound by memory: s, dy and ds are read once, ds written once. A block walks over a band of rows and keeps its
// channels' sums for dgain and dbias in registers; the bands' sums are added in a second launch, in order. There are as
// many bands as blocks fit an H200 at once, whatever the GPU: so the sums are always cut alike.

namespace filigree::cuda {
namespace {

template <typename T>
struct Backward {
  T* ds;              // (T, C)
  float* partial;     // (bands, 2, C): sums for dgain, then for dbias
  const T* dy;        // (T, C)
  const T* s;         // (T, C)
  const float* mean;  // (T), null for RMSNorm
  const float* rstd;  // (T)
  const float* gain;  // (C)
  std::int64_t rows, channels, band_rows;
};

// Rows that a block takes at once: with one unit a thread there are registers for two, and twice the bytes on their way
// hide the memory's latency.
constexpr int rows_at_once(int units) {
  return units == 1 ? 2 : 1;
}
// Blocks of kRowThreads that fit a multiprocessor, by their registers; `bytes` of an element.
constexpr int blocks_at_once(int units, std::size_t bytes) {
  return units == 1 ? 3 : units < (bytes == 2 ? 4 : 3) ? 2 : 1;
}

// ---------------------------------------------------------------------------------------------------------- kernels

template <int kUnits, typename T>
__global__ __launch_bounds__(kRowThreads, blocks_at_once(kUnits, sizeof(T))) void norm_backward_kernel(
    const __grid_constant__ Backward<T> args) {
  constexpr int kRows = rows_at_once(kUnits);
  __shared__ float shared[RowSums<2 * kRows>::kFloats];
  RowSums<2 * kRows> row_sums(shared);
  const auto units = static_cast<int>(args.channels / kUnit);
  const float inverse = 1.0f / static_cast<float>(args.channels);
  Floats<kUnit> gain[kUnits], dgain[kUnits], dbias[kUnits];
  bool mine[kUnits];
  int channel[kUnits];
#pragma unroll
  for (int u = 0; u < kUnits; ++u) {
    const auto unit = static_cast<int>(threadIdx.x + u * blockDim.x);
    mine[u] = unit < units;
    channel[u] = unit * kUnit;
    gain[u] = dgain[u] = dbias[u] = {};
    if (mine[u]) gain[u] = load<kUnit>(args.gain + channel[u]);
  }
  const std::int64_t begin = blockIdx.x * args.band_rows, end = min(begin + args.band_rows, args.rows);
  for (std::int64_t first = begin; first < end; first += kRows) {
    // As they are stored, and converted twice, to save registers.
    Packed<kUnit, T> s[kRows][kUnits], dy[kRows][kUnits], ds[kRows][kUnits];
    float mean[kRows], rstd[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const bool inside = first + r < end;
      const std::int64_t at = (first + r) * args.channels;
      mean[r] = inside && args.mean ? args.mean[first + r] : 0.0f;
      rstd[r] = inside ? args.rstd[first + r] : 0.0f;
#pragma unroll
      for (int u = 0; u < kUnits; ++u) {
        s[r][u] = dy[r][u] = ds[r][u] = {};
        if (!mine[u] || !inside) continue;
        s[r][u] = load_packed<kUnit>(args.s + at + channel[u]);
        dy[r][u] = load_packed<kUnit>(args.dy + at + channel[u]);
        ds[r][u] = load_packed<kUnit>(args.ds + at + channel[u]);
      }
    }
    float sums[2 * kRows] = {};  // of g and of g n, for each row
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int u = 0; u < kUnits; ++u) {
        const Floats<kUnit> row = unpack(s[r][u]), gradient = unpack(dy[r][u]);
#pragma unroll
        for (int i = 0; i < kUnit; ++i) {
          const float normal = (row.values[i] - mean[r]) * rstd[r];
          dgain[u].values[i] += gradient.values[i] * normal;
          dbias[u].values[i] += gradient.values[i];
          const float g = gradient.values[i] * gain[u].values[i];
          sums[2 * r] += g;
          sums[2 * r + 1] += g * normal;
        }
      }
    row_sums.sum(sums);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float mean_g = args.mean ? sums[2 * r] * inverse : 0.0f, mean_gn = sums[2 * r + 1] * inverse;
#pragma unroll
      for (int u = 0; u < kUnits; ++u) {
        if (!mine[u] || first + r >= end) continue;
        s[r][u].forget();
        dy[r][u].forget();
        const Floats<kUnit> row = unpack(s[r][u]), gradient = unpack(dy[r][u]);
        Floats<kUnit> result = unpack(ds[r][u]);
#pragma unroll
        for (int i = 0; i < kUnit; ++i) {
          const float normal = (row.values[i] - mean[r]) * rstd[r];
          const float rest = fmaf(-normal, mean_gn, gradient.values[i] * gain[u].values[i] - mean_g);
          result.values[i] = fmaf(rest, rstd[r], result.values[i]);
        }
        store(args.ds + (first + r) * args.channels + channel[u], result);
      }
    }
  }
  float* const partial = args.partial + blockIdx.x * 2 * args.channels;
#pragma unroll
  for (int u = 0; u < kUnits; ++u)
    if (mine[u]) {
      store(partial + channel[u], dgain[u]);
      store(partial + args.channels + channel[u], dbias[u]);
    }
}

// Any width and alignment: ds by a block a row, then dgain and dbias by a thread a channel of a band.
template <typename T>
__global__ __launch_bounds__(kRowThreads) void norm_backward_any_kernel(const __grid_constant__ Backward<T> args) {
  __shared__ float shared[RowSums<2>::kFloats];
  RowSums<2> row_sums(shared);
  const float inverse = 1.0f / static_cast<float>(args.channels);
  const std::int64_t row = blockIdx.x, at = row * args.channels;
  const float mean = args.mean ? args.mean[row] : 0.0f, rstd = args.rstd[row];
  float sums[2] = {};
  for (std::int64_t i = threadIdx.x; i < args.channels; i += kRowThreads) {
    const float g = to_float(args.dy[at + i]) * args.gain[i];
    sums[0] += g;
    sums[1] += g * ((to_float(args.s[at + i]) - mean) * rstd);
  }
  row_sums.sum(sums);
  const float mean_g = args.mean ? sums[0] * inverse : 0.0f, mean_gn = sums[1] * inverse;
  for (std::int64_t i = threadIdx.x; i < args.channels; i += kRowThreads) {
    const float g = to_float(args.dy[at + i]) * args.gain[i];
    const float normal = (to_float(args.s[at + i]) - mean) * rstd;
    args.ds[at + i] = from_float<T>(fmaf(fmaf(-normal, mean_gn, g - mean_g), rstd, to_float(args.ds[at + i])));
  }
}

template <typename T>
__global__ __launch_bounds__(kRowThreads) void gain_bands_kernel(const __grid_constant__ Backward<T> args) {
  const std::int64_t channel = static_cast<std::int64_t>(blockIdx.y) * kRowThreads + threadIdx.x;
  if (channel >= args.channels) return;
  const std::int64_t begin = blockIdx.x * args.band_rows, end = min(begin + args.band_rows, args.rows);
  float dgain = 0.0f, dbias = 0.0f;
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t at = row * args.channels + channel;
    const float dy = to_float(args.dy[at]), mean = args.mean ? args.mean[row] : 0.0f;
    dgain += dy * ((to_float(args.s[at]) - mean) * args.rstd[row]);
    dbias += dy;
  }
  float* const partial = args.partial + blockIdx.x * 2 * args.channels;
  partial[channel] = dgain;
  partial[args.channels + channel] = dbias;
}

}  // namespace

// --------------------------------------------------------------------------------------------------------- launcher

void norm_backward(Device& device, const NormBackwardArgs& args) {
  constexpr std::int64_t kMultiprocessors = 132;  // of an H200
  const std::int64_t channels = args.gain.count(), rows = args.dy.count() / channels;
  const bool layer = args.kind == NormKind::layer;
  const RowLayout layout = row_layout(channels, aligned({args.ds.data, args.dy.data, args.sum.data, args.gain.data}));
  const std::int64_t resident =
      layout.units == 0 ? 8 : blocks_at_once(layout.units, size_of(args.dy.dtype)) * kRowThreads / layout.threads;
  const std::int64_t wanted = kMultiprocessors * resident;
  const std::int64_t band_rows = (rows + wanted - 1) / wanted;
  const std::int64_t bands = (rows + band_rows - 1) / band_rows;
  auto* partial = static_cast<float*>(
      device.scratch(Scratch::kernel, static_cast<std::size_t>(bands * 2 * channels) * sizeof(float)));
  with_device_type(args.dy.dtype, [&]<typename T>() {
    const Backward<T> backward = {.ds = static_cast<T*>(args.ds.data),
                                  .partial = partial,
                                  .dy = static_cast<const T*>(args.dy.data),
                                  .s = static_cast<const T*>(args.sum.data),
                                  .mean = layer ? args.mean.as<float>() : nullptr,
                                  .rstd = args.rstd.as<float>(),
                                  .gain = args.gain.as<float>(),
                                  .rows = rows,
                                  .channels = channels,
                                  .band_rows = band_rows};
    if (layout.units == 0) {
      norm_backward_any_kernel<T><<<static_cast<unsigned int>(rows), kRowThreads, 0, device.stream()>>>(backward);
      const dim3 grid(static_cast<unsigned int>(bands), blocks_for(channels, kRowThreads));
      gain_bands_kernel<T><<<grid, kRowThreads, 0, device.stream()>>>(backward);
      return;
    }
    with_units(layout.units, [&]<int kUnits>() {
      norm_backward_kernel<kUnits, T>
          <<<static_cast<unsigned int>(bands), layout.threads, 0, device.stream()>>>(backward);
    });
  });
  check_launch();
  add_band_sums(device, {args.dgain.as<float>(), partial},
                {layer && !args.dbias.empty() ? args.dbias.as<float>() : nullptr, partial + channels}, bands,
                2 * channels, channels);
}

}  // namespace filigree::cuda
