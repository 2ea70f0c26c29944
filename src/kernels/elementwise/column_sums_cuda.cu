#include "kernels/elementwise/column_sums_cuda.h"

#include <algorithm>

#include "kernels/cuda_vector.cuh"
#include "kernels/elementwise/elementwise.h"

// Column sums in two passes: bands of rows into partial sums, then the bands in order. Bound by memory: x is read once,
// and the partial sums are a hundredth of it. The cuts depend on the shape alone, so that every GPU gives the same
// bits.

namespace filigree::cuda {
namespace {

// First pass: a block takes 128 columns of a band, 16 threads with 8 columns each side by side and 16 rows at once.
constexpr int kColumnThreads = 16, kRowThreads = 16;
constexpr int kEach = 8;
constexpr int kTile = kColumnThreads * kEach;
constexpr int kUnroll = 4;  // rows that a thread has on their way from memory

// Second pass: 32 columns a block, 32 slices of the bands at once.
constexpr int kSlices = 32;

// ---------------------------------------------------------------------------------------------------------- kernels

// kVectors: rows are whole packs of 16 bytes, and a thread's columns are neighbours; otherwise they are kColumnThreads
// apart, so that neighbouring threads read neighbouring elements.
template <bool kVectors, typename T>
__global__ __launch_bounds__(kColumnThreads* kRowThreads) void band_sums_kernel(
    float* __restrict__ partial,  // (bands, N)
    const T* __restrict__ x,      // (T, N)
    std::int64_t rows, std::int64_t columns, std::int64_t band_rows) {
  __shared__ float sums[kRowThreads][kTile];
  const int within = static_cast<int>(threadIdx.x) * (kVectors ? kEach : 1);
  constexpr int kApart = kVectors ? 1 : kColumnThreads;
  const std::int64_t first_column = static_cast<std::int64_t>(blockIdx.x) * kTile;
  const std::int64_t column = first_column + within;
  const std::int64_t first = blockIdx.y * band_rows, last = min(first + band_rows, rows);
  float sum[kEach] = {};
  if constexpr (kVectors) {
    if (column < columns) {
      const T* from = x + column;
#pragma unroll kUnroll
      for (std::int64_t row = first + threadIdx.y; row < last; row += kRowThreads) {
        const Floats<kEach> values = load<kEach>(from + row * columns);
#pragma unroll
        for (int i = 0; i < kEach; ++i) sum[i] += values.values[i];
      }
    }
  } else {
    for (std::int64_t row = first + threadIdx.y; row < last; row += kRowThreads)
#pragma unroll
      for (int i = 0; i < kEach; ++i)
        if (column + i * kApart < columns) sum[i] += to_float(x[row * columns + column + i * kApart]);
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) sums[threadIdx.y][within + i * kApart] = sum[i];
  __syncthreads();
  const int thread = static_cast<int>(threadIdx.y) * kColumnThreads + static_cast<int>(threadIdx.x);
  if (thread >= kTile || first_column + thread >= columns) return;
  float total = 0.0f;
  for (int row = 0; row < kRowThreads; ++row) total += sums[row][thread];
  partial[blockIdx.y * columns + first_column + thread] = total;
}

__global__ __launch_bounds__(kWarp* kSlices) void add_bands_kernel(BandSums first, BandSums second, std::int64_t bands,
                                                                   std::int64_t stride, std::int64_t columns) {
  __shared__ float sums[kSlices][kWarp];
  const BandSums band = blockIdx.y == 0 ? first : second;
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kWarp + threadIdx.x;
  float sum = 0.0f;
  if (column < columns)
#pragma unroll 4
    for (std::int64_t row = threadIdx.y; row < bands; row += kSlices) sum += band.partial[row * stride + column];
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  for (int slice = 1; slice < kSlices; ++slice) sum += sums[slice][threadIdx.x];
  band.out[column] += sum;
}

// Rows of a band: about 16 blocks a multiprocessor of the H200, within 64 rows, below which the partial sums would
// count, and 512.
std::int64_t band_rows_for(std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t kBlocks = 16 * 132;
  const std::int64_t tiles = (columns + kTile - 1) / kTile;
  const std::int64_t wanted = rows * tiles / kBlocks / kRowThreads * kRowThreads;
  return std::clamp<std::int64_t>(wanted, 64, 512);
}

}  // namespace

// -------------------------------------------------------------------------------------------------------- launchers

void add_band_sums(Device& device, const BandSums& first, const BandSums& second, std::int64_t bands,
                   std::int64_t stride, std::int64_t columns) {
  const dim3 grid(blocks_for(columns, kWarp), second.out ? 2 : 1);
  add_bands_kernel<<<grid, dim3(kWarp, kSlices), 0, device.stream()>>>(first, second, bands, stride, columns);
  check_launch();
}

void add_column_sums(Device& device, const Tensor& sum, const Tensor& x) {
  const std::int64_t columns = sum.count(), rows = x.count() / columns;
  if (rows == 0) return;
  // No more bands than a grid has rows.
  const std::int64_t band_rows = std::max(band_rows_for(rows, columns), (rows + 65534) / 65535);
  const std::int64_t bands = (rows + band_rows - 1) / band_rows;
  auto* partial =
      static_cast<float*>(device.scratch(Scratch::kernel, static_cast<std::size_t>(bands * columns) * sizeof(float)));
  const dim3 grid(blocks_for(columns, kTile), static_cast<unsigned int>(bands));
  const dim3 block(kColumnThreads, kRowThreads);
  with_device_type(x.dtype, [&]<typename T>() {
    const auto* from = static_cast<const T*>(x.data);
    if (columns % kEach == 0 && aligned({from}))
      band_sums_kernel<true><<<grid, block, 0, device.stream()>>>(partial, from, rows, columns, band_rows);
    else
      band_sums_kernel<false><<<grid, block, 0, device.stream()>>>(partial, from, rows, columns, band_rows);
  });
  check_launch();
  add_band_sums(device, {sum.as<float>(), partial}, {}, bands, columns, columns);
}

}  // namespace filigree::cuda
