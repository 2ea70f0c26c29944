// The functions of activation.h and their derivatives, for every kernel that applies them: a fused one gives the bits
// of a separate one.
#pragma once

#include "kernels/cuda_vector.cuh"

namespace filigree::cuda {

// 1 / (1 + 2^-x), at least 2^-126.
__device__ __forceinline__ float logistic2(float x) {
  return reciprocal(1.0f + exponential2(fminf(-x, 126.0f)));
}

// x · logistic(2u) with u = sqrt(2/pi) (x + 0.044715 x³), which equals x/2 (1 + tanh(u)) and loses nothing where tanh
// is near -1.
struct Gelu {
  static constexpr float kTwoRootTwoOverPi = 1.5957691216f;
  static constexpr float kCubic = 0.044715f;

  static __device__ __forceinline__ float gate(float x) {  // logistic(2u); log2(e) is in the constants
    constexpr float kLinear = kTwoRootTwoOverPi * kLog2E;
    return logistic2(x * fmaf(x * x, kLinear * kCubic, kLinear));
  }
  static __device__ __forceinline__ float value(float x) { return x * gate(x); }
  static __device__ __forceinline__ float derivative(float x) {
    // d/dx (x s) = s + x s (1 - s) · 2u'
    const float open = gate(x), product = x * open;
    const float slope = fmaf(x * x, 3.0f * kTwoRootTwoOverPi * kCubic, kTwoRootTwoOverPi);
    return fmaf(fmaf(-product, open, product), slope, open);
  }
};

struct Relu {  // a NaN passes
  static __device__ __forceinline__ float value(float x) { return x < 0.0f ? 0.0f : x; }
  static __device__ __forceinline__ float derivative(float x) { return x > 0.0f ? 1.0f : 0.0f; }
};

}  // namespace filigree::cuda
