#include <algorithm>
#include <vector>

#include "kernels/cuda_table.cuh"
#include "kernels/cuda_vector.cuh"
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

// y[i] = body(y[i], x[i]) over packs of eight, the rest one by one.
template <typename Y, typename X, typename Body>
void combine(Device& device, Y* y, const X* x, std::int64_t count, const Body& body) {
  constexpr std::int64_t kWide = 8;
  const std::int64_t packs = aligned({y, x}) ? count / kWide : 0;
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

// An array of which squares are summed, in pieces of kPiece elements; a block takes a piece.
constexpr std::int64_t kPiece = 32768;

struct Array {
  const void* data;
  std::int64_t count;
  std::int32_t first_piece;
  std::uint16_t is_bf16;
  std::uint16_t vectors;  // whether its address suits packs
};

// Sum over the threads of the block, for the first one.
__device__ double block_sum_in_order(double sum) {
  __shared__ double sums[kThreads];
  sums[threadIdx.x] = sum;
  for (int width = kThreads / 2; width > 0; width /= 2) {
    __syncthreads();
    if (threadIdx.x < width) sums[threadIdx.x] += sums[threadIdx.x + width];
  }
  return threadIdx.x == 0 ? sums[0] : 0.0;
}

// This thread's share. The squares of a pack are added in fp32, the packs in double.
template <typename T>
__device__ double squares_of(const T* __restrict__ from, int count, bool vectors) {
  const T* const x = in_device_memory(from);
  constexpr int kEach = kPack<T>;
  double sum = 0.0;
  const int whole = vectors ? count / kEach * kEach : 0;
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x) * kEach; i < whole; i += kThreads * kEach) {
    const Floats<kEach> values = load<kEach>(x + i);
    float squares = 0.0f;
#pragma unroll
    for (int j = 0; j < kEach; ++j) squares += values.values[j] * values.values[j];
    sum += static_cast<double>(squares);
  }
  for (int i = whole + static_cast<int>(threadIdx.x); i < count; i += kThreads) {
    const float value = to_float(x[i]);
    sum += static_cast<double>(value * value);
  }
  return sum;
}

__global__ __launch_bounds__(kThreads) void squares_kernel(double* __restrict__ partial,
                                                           const Array* __restrict__ arrays, int count) {
  const auto piece = static_cast<std::int32_t>(blockIdx.x);
  const Array array = arrays[entry_of(arrays, count, piece)];
  const std::int64_t begin = (piece - array.first_piece) * kPiece;
  const auto length = static_cast<int>(min(kPiece, array.count - begin));
  const double sum = block_sum_in_order(
      array.is_bf16 ? squares_of(static_cast<const __nv_bfloat16*>(array.data) + begin, length, array.vectors)
                    : squares_of(static_cast<const float*>(array.data) + begin, length, array.vectors));
  if (threadIdx.x == 0) partial[piece] = sum;
}

__global__ __launch_bounds__(kThreads) void sums_kernel(double* __restrict__ partial, const float* __restrict__ x,
                                                        std::int64_t count) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  double sum = 0.0;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += stride)
    sum += static_cast<double>(x[i]);
  sum = block_sum_in_order(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

// total = the partial sums, by one block.
__global__ __launch_bounds__(kThreads) void total_kernel(double* __restrict__ total, const double* __restrict__ partial,
                                                         int count) {
  double sum = 0.0;
#pragma unroll 8
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) sum += partial[i];
  sum = block_sum_in_order(sum);
  if (threadIdx.x == 0) *total = sum;
}

// partial (count), and after it a place for their sum.
double total_of(Device& device, double* partial, std::int64_t count) {
  total_kernel<<<1, kThreads, 0, device.stream()>>>(partial + count, partial, static_cast<int>(count));
  check_launch();
  double total = 0.0;
  copy(&total, partial + count, sizeof total, Copy::to_host, device.stream());
  device.synchronize();
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

double sum_of_squares(Device& device, std::span<const Tensor> tensors) {
  std::vector<Array> arrays;
  arrays.reserve(tensors.size());
  std::int64_t pieces = 0;
  for (const Tensor& tensor : tensors) {
    if (tensor.count() == 0) continue;
    arrays.push_back({.data = tensor.data,
                      .count = tensor.count(),
                      .first_piece = static_cast<std::int32_t>(pieces),
                      .is_bf16 = tensor.dtype == DType::bf16,
                      .vectors = aligned({tensor.data})});
    pieces += (tensor.count() + kPiece - 1) / kPiece;
  }
  if (arrays.empty()) return 0.0;
  require(pieces < std::numeric_limits<std::int32_t>::max(), "sum_of_squares: more elements than one launch takes");
  auto* partial =
      static_cast<double*>(device.scratch(Scratch::kernel, static_cast<std::size_t>(pieces + 1) * sizeof(double)));
  const Array* on_device = KernelTables::on_device(device, Table::sum_of_squares, arrays);
  squares_kernel<<<static_cast<unsigned int>(pieces), kThreads, 0, device.stream()>>>(partial, on_device,
                                                                                      static_cast<int>(arrays.size()));
  check_launch();
  return total_of(device, partial, pieces);
}

double sum(Device& device, const Tensor& x) {
  if (x.count() == 0) return 0.0;
  constexpr unsigned int kBlocks = 128;
  auto* partial = static_cast<double*>(device.scratch(Scratch::kernel, (kBlocks + 1) * sizeof(double)));
  sums_kernel<<<kBlocks, kThreads, 0, device.stream()>>>(partial, x.as<float>(), x.count());
  check_launch();
  return total_of(device, partial, kBlocks);
}

}  // namespace filigree::cuda
