#include "kernels/cuda_vector.cuh"
#include "kernels/rotary/rotary.h"

// Bound by memory: queries and keys are read and written once. A warp a token; its row of the table serves all heads
// and comes from the caches.

namespace filigree::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kTokens = kThreads / kWarp;  // of a block

// kEach neighbouring entries of a head's lower half and the entries of its upper half that turn with them.
template <int kEach, typename T>
__global__ __launch_bounds__(kThreads) void rotary_kernel(T* qkv,                           // (B, S, (H + 2G) D)
                                                          const float* __restrict__ table,  // (C, D), from `start` on
                                                          std::uint32_t tokens, std::uint32_t positions,
                                                          std::int64_t row_size, int turned, int half, float sign) {
  const std::uint32_t token = blockIdx.x * kTokens + threadIdx.x / kWarp;
  if (token >= tokens) return;
  const float* cosines = table + static_cast<std::int64_t>(token % positions) * (2 * half);
  const float* sines = cosines + half;
  T* row = qkv + token * row_size;
  const int parts = half / kEach;  // of a head
  for (int item = static_cast<int>(threadIdx.x) % kWarp; item < turned * parts; item += kWarp) {
    const int head = item / parts, i = (item - head * parts) * kEach;
    T* const lower = row + static_cast<std::int64_t>(head) * (2 * half) + i;
    T* const upper = lower + half;
    Floats<kEach> a = load<kEach>(lower), b = load<kEach>(upper);
    const Floats<kEach> cosine = load<kEach>(cosines + i), sine = load<kEach>(sines + i);
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const float turn = sine.values[j] * sign, from = a.values[j], with = b.values[j];
      a.values[j] = fmaf(-with, turn, from * cosine.values[j]);
      b.values[j] = fmaf(from, turn, with * cosine.values[j]);
    }
    store(lower, a);
    store(upper, b);
  }
}

}  // namespace

void rotary(Device& device, const RotaryArgs& args) {
  const std::int64_t positions = args.qkv.shape[1], tokens = args.qkv.shape[0] * positions;
  const std::int64_t size = args.table.shape[1], half = size / 2;
  const float* table = args.table.as<float>() + args.start * size;
  with_device_type(args.qkv.dtype, [&]<typename T>() {
    constexpr int kEach = 8;
    auto* qkv = static_cast<T*>(args.qkv.data);
    const auto launch = [&](auto kernel) {
      kernel<<<blocks_for(tokens, kTokens), kThreads, 0, device.stream()>>>(
          qkv, table, tokens, positions, args.qkv.shape[2], args.heads + args.kv_heads, static_cast<int>(half),
          args.inverse ? -1.0f : 1.0f);
    };
    if (half % kEach == 0 && aligned({qkv, table}))
      launch(rotary_kernel<kEach, T>);
    else
      launch(rotary_kernel<1, T>);
  });
  check_launch();
}

}  // namespace filigree::cuda
