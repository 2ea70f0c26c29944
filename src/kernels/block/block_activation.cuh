// The activations that block products take along.
#pragma once

#include "kernels/activation/activation_functions.cuh"
#include "kernels/block/block_matmul.h"

namespace filigree {

__device__ __forceinline__ float activated(BlockActivation activation, float x) {
  if (activation == BlockActivation::gelu) return cuda::Gelu::value(x);
  if (activation == BlockActivation::relu) return cuda::Relu::value(x);
  return x;
}
__device__ __forceinline__ float activation_derivative(BlockActivation activation, float x) {
  if (activation == BlockActivation::gelu) return cuda::Gelu::derivative(x);
  if (activation == BlockActivation::relu) return cuda::Relu::derivative(x);
  return 1.0f;
}

}  // namespace filigree
