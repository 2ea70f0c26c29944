// Shared by the CUDA kernels: element types, 16-byte access, reductions, launches.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "core/cuda_error.h"
#include "core/device.h"
#include "core/dtype.h"

namespace filigree::cuda {

inline constexpr int kWarp = 32;

template <typename T>
struct DeviceType {
  using type = T;
};
template <>
struct DeviceType<bf16> {
  using type = __nv_bfloat16;
};

// Calls body.operator()<T>() with float or __nv_bfloat16, as `dtype` says.
template <typename Body>
auto with_device_type(DType dtype, Body&& body) {
  return with_compute_type(dtype,
                           [&]<typename T>() { return body.template operator()<typename DeviceType<T>::type>(); });
}

__device__ __forceinline__ float to_float(float value) {
  return value;
}
__device__ __forceinline__ float to_float(__nv_bfloat16 value) {
  return __bfloat162float(value);
}
template <typename T>
__device__ __forceinline__ T from_float(float value) {
  if constexpr (sizeof(T) == 2)
    return __float2bfloat16_rn(value);
  else
    return value;
}

// What one thread reads or writes at once: 16 bytes.
template <typename T>
struct alignas(16) Pack {
  static constexpr int kCount = 16 / sizeof(T);
  T values[kCount];
};
template <typename T>
__device__ __forceinline__ Pack<T> load_pack(const T* from) {
  return *reinterpret_cast<const Pack<T>*>(from);
}
template <typename T>
__device__ __forceinline__ void store_pack(T* to, const Pack<T>& pack) {
  *reinterpret_cast<Pack<T>*>(to) = pack;
}

__device__ __forceinline__ float warp_sum(float value) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
  return value;
}
__device__ __forceinline__ float warp_max(float value) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2)
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, offset));
  return value;
}

// Sum over a block of kThreads threads, the same bits in each of them. `partial`: kThreads / 32 floats of shared
// memory; they may be used again after the next __syncthreads().
template <int kThreads>
__device__ __forceinline__ float block_sum(float value, float* partial) {
  constexpr int kWarps = kThreads / kWarp;
  value = warp_sum(value);
  if (threadIdx.x % kWarp == 0) partial[threadIdx.x / kWarp] = value;
  __syncthreads();
  float sum = 0.0f;
  for (int warp = 0; warp < kWarps; ++warp) sum += partial[warp];
  return sum;
}

// Between kernels, from compute capability 9.0 on: a kernel that is launched with programmatic stream serialization may
// begin when all thread blocks of the one before it have called let_next_begin, wherever that is. What that one writes
// is there, and what it reads may be written, after wait_for_previous.
__device__ __forceinline__ void let_next_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}
__device__ __forceinline__ void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

inline unsigned int blocks_for(std::int64_t count, std::int64_t per_block) {
  return static_cast<unsigned int>((count + per_block - 1) / per_block);
}

// After each launch: a refused configuration is reported where it was asked for.
inline void check_launch(std::source_location at = std::source_location::current()) {
  check(cudaGetLastError(), at);
}

}  // namespace filigree::cuda
