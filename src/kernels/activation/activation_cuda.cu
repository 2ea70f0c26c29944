#include <algorithm>

#include "kernels/activation/activation.h"
#include "kernels/activation/activation_functions.cuh"
#include "kernels/cuda_vector.cuh"

// Bound by memory: each element is read and written once, in packs of 16 bytes where the addresses allow it. Gelu's
// exponential and its reciprocal keep the special function units half busy at the full speed of the memory (H200,
// bf16).

namespace filigree::cuda {
namespace {

constexpr int kThreads = 256;

// ---------------------------------------------------------------------------------------------------------- kernels

// y = function(x): `packs` whole packs, then one by one up to `count`. y may be x.
template <typename Function, typename T>
__global__ __launch_bounds__(kThreads) void map_kernel(T* y, const T* x, std::int64_t packs, std::int64_t count) {
  let_next_begin();
  constexpr int kEach = kPack<T>;
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t pack = thread; pack < packs; pack += stride) {
    Floats<kEach> values = load<kEach>(x + pack * kEach);
#pragma unroll
    for (int i = 0; i < kEach; ++i) values.values[i] = Function::value(values.values[i]);
    store(y + pack * kEach, values);
  }
  for (std::int64_t i = packs * kEach + thread; i < count; i += stride)
    y[i] = from_float<T>(Function::value(to_float(x[i])));
}

// dx = dy · function'(x). dx may be x or dy.
template <typename Function, typename T>
__global__ __launch_bounds__(kThreads) void map_backward_kernel(T* dx, const T* dy, const T* x, std::int64_t packs,
                                                                std::int64_t count) {
  constexpr int kEach = kPack<T>;
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t pack = thread; pack < packs; pack += stride) {
    Floats<kEach> gradient = load<kEach>(dy + pack * kEach);
    const Floats<kEach> values = load<kEach>(x + pack * kEach);
#pragma unroll
    for (int i = 0; i < kEach; ++i) gradient.values[i] *= Function::derivative(values.values[i]);
    store(dx + pack * kEach, gradient);
  }
  for (std::int64_t i = packs * kEach + thread; i < count; i += stride)
    dx[i] = from_float<T>(to_float(dy[i]) * Function::derivative(to_float(x[i])));
}

// A block a row.
template <int kEach, typename T>
__global__ __launch_bounds__(kThreads) void swiglu_kernel(T* __restrict__ y,        // (T, F)
                                                          const T* __restrict__ x,  // (T, 2F)
                                                          std::int64_t width) {
  const T* gates = x + blockIdx.x * 2 * width;
  T* out = y + blockIdx.x * width;
  for (std::int64_t i = threadIdx.x * kEach; i < width; i += blockDim.x * kEach) {
    const Floats<kEach> gate = load<kEach>(gates + i);
    Floats<kEach> up = load<kEach>(gates + width + i);
#pragma unroll
    for (int j = 0; j < kEach; ++j) up.values[j] = gate.values[j] * logistic2(gate.values[j] * kLog2E) * up.values[j];
    store(out + i, up);
  }
}

template <int kEach, typename T>
__global__ __launch_bounds__(kThreads) void swiglu_backward_kernel(T* dx,                     // (T, 2F), may be x
                                                                   const T* __restrict__ dy,  // (T, F)
                                                                   const T* x,                // (T, 2F)
                                                                   std::int64_t width) {
  const T* gates = x + blockIdx.x * 2 * width;
  const T* gradients = dy + blockIdx.x * width;
  T* dgates = dx + blockIdx.x * 2 * width;
  for (std::int64_t i = threadIdx.x * kEach; i < width; i += blockDim.x * kEach) {
    Floats<kEach> gate = load<kEach>(gates + i);
    Floats<kEach> up = load<kEach>(gates + width + i);
    const Floats<kEach> gradient = load<kEach>(gradients + i);
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const float open = logistic2(gate.values[j] * kLog2E);
      const float silu = gate.values[j] * open;
      // d/dg (g s) = s + g s (1 - s)
      gate.values[j] = gradient.values[j] * up.values[j] * fmaf(silu, 1.0f - open, open);
      up.values[j] = gradient.values[j] * silu;
    }
    store(dgates + i, gate);
    store(dgates + width + i, up);
  }
}

// -------------------------------------------------------------------------------------------------------- launchers

struct Grid {
  std::int64_t packs;
  unsigned int blocks;
};
Grid grid_for(const Device& device, std::int64_t count, int each, bool wide) {
  const std::int64_t packs = wide ? count / each : 0, single = count - packs * each;
  const unsigned int most = 32u * static_cast<unsigned int>(device.gpu().multiprocessors);
  return {packs, std::min(blocks_for(std::max(packs, single), kThreads), most)};
}

template <typename Function, typename T>
void map(Device& device, T* y, const T* x, std::int64_t count) {
  const Grid grid = grid_for(device, count, kPack<T>, aligned({y, x}));
  map_kernel<Function><<<grid.blocks, kThreads, 0, device.stream()>>>(y, x, grid.packs, count);
}

template <typename Function, typename T>
void map_backward(Device& device, T* dx, const T* dy, const T* x, std::int64_t count) {
  const Grid grid = grid_for(device, count, kPack<T>, aligned({dx, dy, x}));
  map_backward_kernel<Function><<<grid.blocks, kThreads, 0, device.stream()>>>(dx, dy, x, grid.packs, count);
}

int threads_for(std::int64_t items) {
  return static_cast<int>(std::min<std::int64_t>((items + kWarp - 1) / kWarp * kWarp, kThreads));
}

template <typename T>
void swiglu(Device& device, T* y, const T* x, std::int64_t rows, std::int64_t width) {
  constexpr int kEach = kPack<T>;
  const auto blocks = static_cast<unsigned int>(rows);
  if (width % kEach == 0 && aligned({y, x}))
    swiglu_kernel<kEach><<<blocks, threads_for(width / kEach), 0, device.stream()>>>(y, x, width);
  else
    swiglu_kernel<1><<<blocks, threads_for(width), 0, device.stream()>>>(y, x, width);
}

template <typename T>
void swiglu_backward(Device& device, T* dx, const T* dy, const T* x, std::int64_t rows, std::int64_t width) {
  constexpr int kEach = kPack<T>;
  const auto blocks = static_cast<unsigned int>(rows);
  if (width % kEach == 0 && aligned({dx, dy, x}))
    swiglu_backward_kernel<kEach><<<blocks, threads_for(width / kEach), 0, device.stream()>>>(dx, dy, x, width);
  else
    swiglu_backward_kernel<1><<<blocks, threads_for(width), 0, device.stream()>>>(dx, dy, x, width);
}

}  // namespace

void activation_forward(Device& device, const ActivationForwardArgs& args) {
  with_device_type(args.x.dtype, [&]<typename T>() {
    auto* y = static_cast<T*>(args.y.data);
    const auto* x = static_cast<const T*>(args.x.data);
    const std::int64_t count = args.y.count(), width = args.y.shape[-1];
    switch (args.kind) {
      case Activation::gelu:
        return map<Gelu>(device, y, x, count);
      case Activation::relu:
        return map<Relu>(device, y, x, count);
      case Activation::swiglu:
        return swiglu(device, y, x, count / width, width);
    }
  });
  check_launch();
}

void activation_backward(Device& device, const ActivationBackwardArgs& args) {
  with_device_type(args.x.dtype, [&]<typename T>() {
    auto* dx = static_cast<T*>(args.dx.data);
    const auto* dy = static_cast<const T*>(args.dy.data);
    const auto* x = static_cast<const T*>(args.x.data);
    const std::int64_t count = args.dy.count(), width = args.dy.shape[-1];
    switch (args.kind) {
      case Activation::gelu:
        return map_backward<Gelu>(device, dx, dy, x, count);
      case Activation::relu:
        return map_backward<Relu>(device, dx, dy, x, count);
      case Activation::swiglu:
        return swiglu_backward(device, dx, dy, x, count / width, width);
    }
  });
  check_launch();
}

}  // namespace filigree::cuda
