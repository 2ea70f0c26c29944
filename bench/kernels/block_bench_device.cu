#include <cuda_bf16.h>

#include <cmath>

#include "core/cuda_error.h"
#include "kernels/block_bench_device.h"

namespace filigree::bench {

namespace {

constexpr int kThreads = 256;

__device__ std::int64_t thread_index() {
  return std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
}
unsigned blocks_for(std::int64_t threads) {
  return static_cast<unsigned>((threads + kThreads - 1) / kThreads);
}

__global__ void fill_kernel(__nv_bfloat16* to, std::int64_t count, std::uint32_t seed) {
  const std::int64_t i = thread_index();
  if (i >= count) return;
  std::uint32_t h =
      static_cast<std::uint32_t>(i) * 0x9E3779B9u ^ static_cast<std::uint32_t>(i >> 32) ^ seed * 0x85EBCA6Bu;
  h = (h ^ h >> 16) * 0x7FEB352Du;
  h = (h ^ h >> 15) * 0x846CA68Bu;
  h ^= h >> 16;
  to[i] = __float2bfloat16_rn(static_cast<float>(static_cast<std::int32_t>(h)) * 0x1p-31f);
}

// One thread an element of the values; finds its block row by bisection.
template <bool kExpand, typename T>
__global__ void move_blocks_kernel(T* dense, T* values, BlockGrid grid, DeviceBlockLists lists) {
  const std::int64_t i = thread_index();
  const std::int64_t elements = std::int64_t{grid.block.rows} * grid.block.columns;
  if (i >= lists.blocks * elements) return;
  const std::int64_t block = i / elements, within = i % elements;
  std::int64_t low = 0, high = (grid.rows + grid.block.rows - 1) / grid.block.rows;
  while (high - low > 1) {
    const std::int64_t middle = (low + high) / 2;
    (lists.row_start[middle] <= block ? low : high) = middle;
  }
  const std::int64_t n = low * grid.block.rows + within / grid.block.columns;
  const std::int64_t k =
      std::int64_t{lists.row_entries[block].other} * grid.block.columns + within % grid.block.columns;
  const bool inside = n < grid.rows && k < grid.columns;
  if (kExpand && inside) dense[n * grid.columns + k] = values[i];
  if (!kExpand) values[i] = inside ? dense[n * grid.columns + k] : T(0.0f);
}

template <typename T>
__global__ void error_kernel(double* sums, const T* a, const T* b, std::int64_t count) {
  double difference = 0.0, norm = 0.0;
  for (std::int64_t i = thread_index(); i < count; i += std::int64_t{gridDim.x} * kThreads) {
    const double x = static_cast<float>(a[i]), y = static_cast<float>(b[i]);
    difference += (x - y) * (x - y);
    norm += y * y;
  }
  atomicAdd(&sums[0], difference);
  atomicAdd(&sums[1], norm);
}

// body.operator()<T>() for a gradient's or an activation's type.
template <typename Body>
void with_element(DType dtype, Body&& body) {
  require(dtype == DType::f32 || dtype == DType::bf16, "neither fp32 nor bf16");
  dtype == DType::f32 ? body.template operator()<float>() : body.template operator()<__nv_bfloat16>();
  check(cudaGetLastError());
}

}  // namespace

void fill_random(void* to, std::int64_t count, std::uint32_t seed, cudaStream_t stream) {
  fill_kernel<<<blocks_for(count), kThreads, 0, stream>>>(static_cast<__nv_bfloat16*>(to), count, seed);
  check(cudaGetLastError());
}

void expand_blocks(void* dense, const void* values, const BlockGrid& grid, const DeviceBlockLists& lists,
                   cudaStream_t stream) {
  check(cudaMemsetAsync(dense, 0, static_cast<std::size_t>(grid.rows * grid.columns) * 2, stream));
  move_blocks_kernel<true, __nv_bfloat16><<<blocks_for(lists.blocks * grid.block_elements()), kThreads, 0, stream>>>(
      static_cast<__nv_bfloat16*>(dense), static_cast<__nv_bfloat16*>(const_cast<void*>(values)), grid, lists);
  check(cudaGetLastError());
}

void gather_blocks(void* values, const void* dense, DType dtype, const BlockGrid& grid, const DeviceBlockLists& lists,
                   cudaStream_t stream) {
  with_element(dtype, [&]<typename T>() {
    move_blocks_kernel<false, T><<<blocks_for(lists.blocks * grid.block_elements()), kThreads, 0, stream>>>(
        static_cast<T*>(const_cast<void*>(dense)), static_cast<T*>(values), grid, lists);
  });
}

double relative_error(const void* a, const void* b, DType dtype, std::int64_t count, cudaStream_t stream) {
  double* sums = nullptr;
  double host[2] = {};
  check(cudaMalloc(&sums, sizeof host));
  check(cudaMemsetAsync(sums, 0, sizeof host, stream));
  with_element(dtype, [&]<typename T>() {
    error_kernel<T><<<1056, kThreads, 0, stream>>>(sums, static_cast<const T*>(a), static_cast<const T*>(b), count);
  });
  check(cudaMemcpyAsync(host, sums, sizeof host, cudaMemcpyDeviceToHost, stream));
  check(cudaStreamSynchronize(stream));
  check(cudaFree(sums));
  return std::sqrt(host[0] / host[1]);
}

}  // namespace filigree::bench
