// Several consecutive elements as fp32, for kernels that are bound by memory: what a thread loads, computes and stores
// at once. The wide forms move packs of 16 bytes and need their alignment; kCount = 1 serves every address.
#pragma once

#include <initializer_list>

#include "kernels/cuda_common.cuh"

namespace filigree::cuda {

// Elements in 16 bytes: with these, the lanes of a warp touch consecutive packs.
template <typename T>
inline constexpr int kPack = Pack<T>::kCount;

template <int kCount>
struct Floats {
  float values[kCount];
};

// The same elements as they are stored, in words of 32 bits: half as many registers in bf16.
template <int kCount, typename T>
struct alignas(16) Packed {
  static_assert(kCount % kPack<T> == 0, "whole packs");
  static constexpr int kWords = kCount * static_cast<int>(sizeof(T)) / 4;
  std::uint32_t words[kWords];

  // Makes the compiler forget what it has computed from the elements. Where they are used before and after a barrier,
  // it would otherwise keep them as fp32, in twice the registers.
  __device__ __forceinline__ void forget() {
#pragma unroll
    for (int i = 0; i < kWords; ++i) asm volatile("" : "+r"(words[i]));
  }
};

template <int kCount, typename T>
__device__ __forceinline__ Packed<kCount, T> load_packed(const T* from) {
  Packed<kCount, T> result;
#pragma unroll
  for (int i = 0; i < Packed<kCount, T>::kWords; i += 4) {
    const uint4 four = *reinterpret_cast<const uint4*>(from + i / 4 * kPack<T>);
    result.words[i] = four.x;
    result.words[i + 1] = four.y;
    result.words[i + 2] = four.z;
    result.words[i + 3] = four.w;
  }
  return result;
}

template <int kCount, typename T>
__device__ __forceinline__ Floats<kCount> unpack(const Packed<kCount, T>& from) {
  Floats<kCount> result;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if constexpr (sizeof(T) == 4)
      result.values[i] = __uint_as_float(from.words[i]);
    else  // a bf16 is the upper half of an fp32; the even elements are in the lower halves
      result.values[i] = __uint_as_float(i % 2 == 0 ? from.words[i / 2] << 16 : from.words[i / 2] & 0xffff0000u);
  }
  return result;
}

template <int kCount, typename T>
__device__ __forceinline__ Floats<kCount> load(const T* from) {
  if constexpr (kCount == 1)
    return {to_float(*from)};
  else
    return unpack(load_packed<kCount>(from));
}

// Two bf16 in a word, the first in the lower half.
__device__ __forceinline__ std::uint32_t two_halves(float first, float second) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
  return static_cast<std::uint32_t>(__bfloat16_as_ushort(pair.y)) << 16 | __bfloat16_as_ushort(pair.x);
}

template <int kCount, typename T>
__device__ __forceinline__ void store(T* to, const Floats<kCount>& from) {
  if constexpr (kCount == 1) {
    *to = from_float<T>(from.values[0]);
  } else {
    static_assert(kCount % kPack<T> == 0, "whole packs");
#pragma unroll
    for (int i = 0; i < kCount; i += kPack<T>) {
      std::uint32_t words[4];
#pragma unroll
      for (int word = 0; word < 4; ++word) {
        if constexpr (sizeof(T) == 4)
          words[word] = __float_as_uint(from.values[i + word]);
        else  // rounded and packed by one instruction
          words[word] = two_halves(from.values[i + 2 * word], from.values[i + 2 * word + 1]);
      }
      const uint4 pack = make_uint4(words[0], words[1], words[2], words[3]);
      if constexpr (sizeof(T) == 4)
        __stwb(reinterpret_cast<uint4*>(to + i), pack);  // of a plain store the compiler sometimes makes four
      else
        *reinterpret_cast<uint4*>(to + i) = pack;
    }
  }
}

// What is read back after storing `value` as a T.
template <typename T>
__device__ __forceinline__ float rounded(float value) {
  return to_float(from_float<T>(value));
}

// Lets the compiler use accesses to device memory for an address that it finds in a list.
template <typename T>
__device__ __forceinline__ T* in_device_memory(T* pointer) {
  __builtin_assume(__isGlobal(pointer));
  return pointer;
}

// Whether all addresses suit packs of 16 bytes; a null pointer does.
inline bool aligned(std::initializer_list<const void*> addresses, std::uintptr_t bytes = 16) {
  for (const void* address : addresses)
    if (reinterpret_cast<std::uintptr_t>(address) % bytes != 0) return false;
  return true;
}

// 2^x by the special function unit: relative error about 2^-22, 0 where the result would be below 2^-126.
__device__ __forceinline__ float exponential2(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
// 1 / x to 1 ulp.
__device__ __forceinline__ float reciprocal(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
inline constexpr float kLog2E = 1.44269504f;

}  // namespace filigree::cuda
