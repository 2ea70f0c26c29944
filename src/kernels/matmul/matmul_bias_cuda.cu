#include <algorithm>

#include "kernels/cuda_common.cuh"
#include "kernels/matmul/matmul_bias_cuda.h"

namespace filigree::cuda {
namespace {

constexpr int kThreads = 256;

template <typename T>
__global__ void write_bias_kernel(T* __restrict__ y,               // (M, N)
                                  const float* __restrict__ bias,  // (N)
                                  std::int64_t count, std::int64_t columns, bool add) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += stride) {
    const float before = add ? to_float(y[i]) : 0.0f;
    y[i] = from_float<T>(before + bias[i % columns]);
  }
}

}  // namespace

void write_bias(Device& device, const Tensor& y, const Tensor& bias, bool add) {
  const auto blocks = std::min(blocks_for(y.count(), kThreads), 32u * device.gpu().multiprocessors);
  with_device_type(y.dtype, [&]<typename T>() {
    write_bias_kernel<<<blocks, kThreads, 0, device.stream()>>>(static_cast<T*>(y.data), bias.as<float>(), y.count(),
                                                                bias.count(), add);
  });
  check_launch();
}

}  // namespace filigree::cuda
