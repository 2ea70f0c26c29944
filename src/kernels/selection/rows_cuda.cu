#include "kernels/cuda_common.cuh"
#include "kernels/selection/rows.h"

// Bound by memory: list_rows reads the matrix once, the others their rows. A warp takes a row.

namespace filigree::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;

// The row of this warp.
__device__ __forceinline__ std::int64_t row_of_warp() {
  return static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
}
__device__ __forceinline__ int lane_of_warp() {
  return static_cast<int>(threadIdx.x) % kWarp;
}

__global__ __launch_bounds__(kThreads) void used_kernel(std::int32_t* __restrict__ used,
                                                        const float* __restrict__ matrix, std::int64_t rows,
                                                        std::int64_t columns) {
  const std::int64_t row = row_of_warp();
  if (row >= rows) return;
  bool any = false;
  for (std::int64_t column = lane_of_warp(); column < columns; column += kWarp)
    any = any || matrix[row * columns + column] != 0.0f;
  any = __any_sync(0xffffffffu, any);
  if (lane_of_warp() == 0) used[row] = any;
}

// One block: the places of the used rows follow from a running sum.
__global__ __launch_bounds__(1024) void list_kernel(std::int32_t* __restrict__ indices, std::int64_t capacity,
                                                    const std::int32_t* __restrict__ used, std::int64_t rows) {
  __shared__ int sums[1024 / kWarp];
  std::int64_t done = 0;
  for (std::int64_t first = 0; first < rows; first += 1024) {
    const std::int64_t row = first + threadIdx.x;
    const bool is_used = row < rows && used[row];
    const unsigned int votes = __ballot_sync(0xffffffffu, is_used);
    if (lane_of_warp() == 0) sums[threadIdx.x / kWarp] = __popc(votes);
    __syncthreads();
    int before = __popc(votes & ((1u << lane_of_warp()) - 1u)), total = 0;
    for (int warp = 0; warp < 1024 / kWarp; ++warp) {
      if (warp < static_cast<int>(threadIdx.x) / kWarp) before += sums[warp];
      total += sums[warp];
    }
    if (is_used && done + before < capacity) indices[done + before] = static_cast<std::int32_t>(row);
    done += total;
    __syncthreads();
  }
  for (std::int64_t slot = done + threadIdx.x; slot < capacity; slot += 1024) indices[slot] = -1;
}

template <typename T>
__global__ __launch_bounds__(kThreads) void gather_kernel(T* __restrict__ values,
                                                          const std::int32_t* __restrict__ indices,
                                                          const float* __restrict__ matrix, std::int64_t capacity,
                                                          std::int64_t columns) {
  const std::int64_t slot = row_of_warp();
  if (slot >= capacity) return;
  const std::int64_t row = indices[slot];
  for (std::int64_t column = lane_of_warp(); column < columns; column += kWarp)
    values[slot * columns + column] = from_float<T>(row < 0 ? 0.0f : matrix[row * columns + column]);
}

template <typename T>
__global__ __launch_bounds__(kThreads) void add_kernel(float* __restrict__ matrix,
                                                       const std::int32_t* __restrict__ indices,
                                                       const T* __restrict__ values, std::int64_t capacity,
                                                       std::int64_t columns) {
  const std::int64_t slot = row_of_warp();
  if (slot >= capacity || indices[slot] < 0) return;
  const std::int64_t row = indices[slot];
  for (std::int64_t column = lane_of_warp(); column < columns; column += kWarp)
    matrix[row * columns + column] += to_float(values[slot * columns + column]);
}

}  // namespace

void list_rows(Device& device, const Tensor& indices, const Tensor& matrix) {
  const std::int64_t rows = matrix.shape[0];
  auto* const used = static_cast<std::int32_t*>(device.scratch(Scratch::kernel, static_cast<std::size_t>(rows) * 4));
  used_kernel<<<blocks_for(rows, kWarps), kThreads, 0, device.stream()>>>(used, matrix.as<float>(), rows,
                                                                          matrix.shape[1]);
  check_launch();
  list_kernel<<<1, 1024, 0, device.stream()>>>(indices.as<std::int32_t>(), indices.count(), used, rows);
  check_launch();
}

void gather_rows(Device& device, const Tensor& values, const Tensor& indices, const Tensor& matrix) {
  with_device_type(values.dtype, [&]<typename T>() {
    gather_kernel<<<blocks_for(indices.count(), kWarps), kThreads, 0, device.stream()>>>(
        static_cast<T*>(values.data), indices.as<std::int32_t>(), matrix.as<float>(), indices.count(), matrix.shape[1]);
  });
  check_launch();
}

void add_rows(Device& device, const Tensor& matrix, const Tensor& indices, const Tensor& values) {
  with_device_type(values.dtype, [&]<typename T>() {
    add_kernel<<<blocks_for(indices.count(), kWarps), kThreads, 0, device.stream()>>>(
        matrix.as<float>(), indices.as<std::int32_t>(), static_cast<const T*>(values.data), indices.count(),
        matrix.shape[1]);
  });
  check_launch();
}

}  // namespace filigree::cuda
