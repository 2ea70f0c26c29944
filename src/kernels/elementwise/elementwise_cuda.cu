#include <algorithm>
#include <vector>

#include "kernels/cuda_common.cuh"
#include "kernels/elementwise/elementwise.h"

// All bound by memory: each element is read and written once, in packs of 16 bytes where the addresses allow it. Sums
// are taken over fixed pieces in a fixed order, so that two runs give the same bits.

namespace filigree::cuda {
namespace {

constexpr int kThreads = 256;

// Calls body(i) for i in [0, count), one thread each and grid-stride.
template <typename Body>
__global__ void each_kernel(std::int64_t count, Body body) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride)
    body(i);
}

template <typename Body>
void each(Device& device, std::int64_t count, const Body& body) {
  if (count == 0) return;
  const auto blocks = std::min<unsigned int>(blocks_for(count, kThreads), 32u * device.gpu().multiprocessors);
  each_kernel<<<blocks, kThreads, 0, device.stream()>>>(count, body);
  check_launch();
}

bool aligned(const void* data) {
  return reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
}

// y[i] = body(y[i], x[i]) over packs of eight, the rest one by one.
template <typename Y, typename X, typename Body>
void combine(Device& device, Y* y, const X* x, std::int64_t count, const Body& body) {
  constexpr std::int64_t kWide = 8;
  const std::int64_t packs = aligned(y) && aligned(x) ? count / kWide : 0;
  each(device, packs, [=] __device__(std::int64_t pack) {
    constexpr int kY = Pack<Y>::kCount, kX = Pack<X>::kCount;
    Pack<Y> ys[kWide / kY];
    Pack<X> xs[kWide / kX];
#pragma unroll
    for (int i = 0; i < kWide / kY; ++i) ys[i] = load_pack(y + pack * kWide + i * kY);
#pragma unroll
    for (int i = 0; i < kWide / kX; ++i) xs[i] = load_pack(x + pack * kWide + i * kX);
#pragma unroll
    for (int i = 0; i < kWide; ++i)
      ys[i / kY].values[i % kY] =
          from_float<Y>(body(to_float(ys[i / kY].values[i % kY]), to_float(xs[i / kX].values[i % kX])));
#pragma unroll
    for (int i = 0; i < kWide / kY; ++i) store_pack(y + pack * kWide + i * kY, ys[i]);
  });
  const std::int64_t done = packs * kWide;
  each(device, count - done, [=] __device__(std::int64_t i) {
    y[done + i] = from_float<Y>(body(to_float(y[done + i]), to_float(x[done + i])));
  });
}

template <typename Body>
void combine_any(Device& device, const Tensor& y, const Tensor& x, const Body& body) {
  with_device_type(y.dtype, [&]<typename Y>() {
    with_device_type(x.dtype, [&]<typename X>() {
      combine(device, static_cast<Y*>(y.data), static_cast<const X*>(x.data), y.count(), body);
    });
  });
}

template <typename T>
void fill_with(Device& device, T* data, std::int64_t count, float value) {
  each(device, count, [=] __device__(std::int64_t i) { data[i] = from_float<T>(value); });
}

// Column sums in two passes: bands of rows into partial sums, then the bands in order.
constexpr std::int64_t kBandRows = 512;
constexpr int kColumnThreads = 32, kRowThreads = 16;

template <typename T>
__global__ void band_sums_kernel(float* __restrict__ partial,  // (bands, N)
                                 const T* __restrict__ x,      // (T, N)
                                 std::int64_t rows, std::int64_t columns) {
  __shared__ float sums[kRowThreads][kColumnThreads + 1];
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kColumnThreads + threadIdx.x;
  const std::int64_t first = blockIdx.y * kBandRows, last = min(first + kBandRows, rows);
  float sum = 0.0f;
  if (column < columns)
    for (std::int64_t row = first + threadIdx.y; row < last; row += kRowThreads)
      sum += to_float(x[row * columns + column]);
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  for (int other = 1; other < kRowThreads; ++other) sum += sums[other][threadIdx.x];
  partial[blockIdx.y * columns + column] = sum;
}

// Squares of one tensor's piece: enough for the multiprocessors, few enough for one block to add up.
constexpr std::int64_t kPiece = std::int64_t{1} << 16;

struct Piece {
  const void* data;
  std::int64_t count;
  bool is_bf16;
};

__global__ void squares_kernel(double* __restrict__ partial, const Piece* __restrict__ pieces) {
  __shared__ double sums[kThreads];
  const Piece piece = pieces[blockIdx.x];
  double sum = 0.0;
  // Four elements in fp32, then into double: the double units are few.
  const auto at = [&](std::int64_t i) {
    if (i >= piece.count) return 0.0f;
    const float value = piece.is_bf16 ? to_float(static_cast<const __nv_bfloat16*>(piece.data)[i])
                                      : static_cast<const float*>(piece.data)[i];
    return value * value;
  };
  for (std::int64_t i = threadIdx.x; i < piece.count; i += 4 * kThreads)
    sum += static_cast<double>((at(i) + at(i + kThreads)) + (at(i + 2 * kThreads) + at(i + 3 * kThreads)));
  sums[threadIdx.x] = sum;
  for (int width = kThreads / 2; width > 0; width /= 2) {
    __syncthreads();
    if (threadIdx.x < width) sums[threadIdx.x] += sums[threadIdx.x + width];
  }
  if (threadIdx.x == 0) partial[blockIdx.x] = sums[0];
}

__global__ void sums_kernel(double* __restrict__ partial, const float* __restrict__ x, std::int64_t count) {
  __shared__ double sums[kThreads];
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  double sum = 0.0;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += stride)
    sum += static_cast<double>(x[i]);
  sums[threadIdx.x] = sum;
  for (int width = kThreads / 2; width > 0; width /= 2) {
    __syncthreads();
    if (threadIdx.x < width) sums[threadIdx.x] += sums[threadIdx.x + width];
  }
  if (threadIdx.x == 0) partial[blockIdx.x] = sums[0];
}

// The host adds the partial sums, in order.
double total_of(Device& device, const double* partial, std::int64_t count) {
  std::vector<double> sums(static_cast<std::size_t>(count));
  copy(sums.data(), partial, sums.size() * sizeof(double), Copy::to_host, device.stream());
  device.synchronize();
  double total = 0.0;
  for (const double sum : sums) total += sum;
  return total;
}

}  // namespace

void add(Device& device, const Tensor& y, const Tensor& x) {
  combine_any(device, y, x, [] __device__(float to, float from) { return to + from; });
}

void convert(Device& device, const Tensor& y, const Tensor& x) {
  if (y.dtype == x.dtype) {
    if (y.data != x.data) device.copy(y, x);
    return;
  }
  combine_any(device, y, x, [] __device__(float, float from) { return from; });
}

void scale(Device& device, const Tensor& y, float factor) {
  combine_any(device, y, y, [=] __device__(float to, float) { return to * factor; });
}

void fill(Device& device, const Tensor& y, float value) {
  if (value == 0.0f) {
    check(cudaMemsetAsync(y.data, 0, y.bytes(), device.stream()));
    return;
  }
  with_device_type(y.dtype, [&]<typename T>() { fill_with(device, static_cast<T*>(y.data), y.count(), value); });
}

void add_column_sums(Device& device, const Tensor& sum, const Tensor& x) {
  const std::int64_t columns = sum.count(), rows = x.count() / columns;
  if (rows == 0) return;
  const std::int64_t bands = (rows + kBandRows - 1) / kBandRows;
  auto* partial =
      static_cast<float*>(device.scratch(Scratch::kernel, static_cast<std::size_t>(bands * columns) * sizeof(float)));
  const dim3 grid(blocks_for(columns, kColumnThreads), static_cast<unsigned int>(bands));
  with_device_type(x.dtype, [&]<typename T>() {
    band_sums_kernel<<<grid, dim3(kColumnThreads, kRowThreads), 0, device.stream()>>>(
        partial, static_cast<const T*>(x.data), rows, columns);
  });
  check_launch();
  float* out = sum.as<float>();
  each(device, columns, [=] __device__(std::int64_t column) {
    float total = 0.0f;
    for (std::int64_t band = 0; band < bands; ++band) total += partial[band * columns + column];
    out[column] += total;
  });
}

double sum_of_squares(Device& device, std::span<const Tensor> tensors) {
  std::vector<Piece> pieces;
  for (const Tensor& tensor : tensors)
    for (std::int64_t begin = 0; begin < tensor.count(); begin += kPiece)
      pieces.push_back({static_cast<const std::byte*>(tensor.data) + begin * size_of(tensor.dtype),
                        std::min(kPiece, tensor.count() - begin), tensor.dtype == DType::bf16});
  if (pieces.empty()) return 0.0;
  const std::size_t list = pieces.size() * sizeof(Piece);
  auto* scratch = static_cast<std::byte*>(device.scratch(Scratch::kernel, list + pieces.size() * sizeof(double)));
  auto* partial = reinterpret_cast<double*>(scratch + list);
  copy(scratch, pieces.data(), list, Copy::to_device, device.stream());
  squares_kernel<<<static_cast<unsigned int>(pieces.size()), kThreads, 0, device.stream()>>>(
      partial, reinterpret_cast<const Piece*>(scratch));
  check_launch();
  return total_of(device, partial, static_cast<std::int64_t>(pieces.size()));
}

double sum(Device& device, const Tensor& x) {
  if (x.count() == 0) return 0.0;
  constexpr unsigned int kBlocks = 128;
  auto* partial = static_cast<double*>(device.scratch(Scratch::kernel, kBlocks * sizeof(double)));
  sums_kernel<<<kBlocks, kThreads, 0, device.stream()>>>(partial, x.as<float>(), x.count());
  check_launch();
  return total_of(device, partial, kBlocks);
}

}  // namespace filigree::cuda
