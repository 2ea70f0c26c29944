// Shared by the forward and backward norm kernels: how a row of C channels is laid over the threads of a block, and
// sums over a row.
//
// Where a row is whole packs of eight channels, at most 8192, it stays in registers: unit u of thread t is the eight
// channels from 8 (t + u · threads) on. Other rows are walked one by one, a pass for each sum.
#pragma once

#include <cstdint>

#include "kernels/cuda_vector.cuh"

namespace filigree::cuda {

inline constexpr int kRowThreads = 256;  // at most
inline constexpr int kUnit = 8;          // channels that a thread takes at once
inline constexpr int kMaxUnits = 4;      // of these for each thread at most

struct RowLayout {
  int units = 0;    // of each thread; 0: the row is not held in registers
  int threads = 0;  // whole warps
};

// `wide`: every row of every operand begins at a multiple of 16 bytes.
inline RowLayout row_layout(std::int64_t channels, bool wide) {
  const std::int64_t all = channels / kUnit;
  if (!wide || channels % kUnit != 0 || all > kRowThreads * kMaxUnits) return {.units = 0, .threads = kRowThreads};
  const auto units = static_cast<int>((all + kRowThreads - 1) / kRowThreads);
  return {.units = units, .threads = static_cast<int>((all + units * kWarp - 1) / (units * kWarp)) * kWarp};
}

// Calls body.operator()<units>() with the constant.
template <typename Body>
void with_units(int units, Body&& body) {
  static_assert(kMaxUnits == 4, "one line for each");
  if (units == 1) return body.template operator()<1>();
  if (units == 2) return body.template operator()<2>();
  if (units == 3) return body.template operator()<3>();
  body.template operator()<4>();
}

// Sums over the threads of a block, one after another, the same bits in each thread. One barrier each: two sets of
// partial sums take turns, and nobody writes a set before all have passed the barrier of the other one.
template <int kValues>
class RowSums {
 public:
  static constexpr int kFloats = 2 * kValues * kRowThreads / kWarp;
  __device__ explicit RowSums(float* shared) : shared_(shared) {}  // kFloats of shared memory

  __device__ __forceinline__ void sum(float (&values)[kValues]) {
    const auto warp = static_cast<int>(threadIdx.x) / kWarp, warps = static_cast<int>(blockDim.x) / kWarp;
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      values[i] = warp_sum(values[i]);
      if (threadIdx.x % kWarp == 0) shared_[(set_ * kValues + i) * (kRowThreads / kWarp) + warp] = values[i];
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      const float* partial = shared_ + (set_ * kValues + i) * (kRowThreads / kWarp);
      values[i] = partial[0];
      for (int other = 1; other < warps; ++other) values[i] += partial[other];
    }
    set_ ^= 1;
  }

 private:
  float* shared_;
  int set_ = 0;
};

}  // namespace filigree::cuda
