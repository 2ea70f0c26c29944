// New keys and values into the cache: a copy of 2 · B · count · G · D elements, bound by its launch.
#include <algorithm>

#include "kernels/attention/attention_cuda.h"
#include "kernels/cuda_common.cuh"

namespace filigree::cuda {
namespace {

constexpr int kThreads = 256;

template <typename T>
__global__ void append_kernel(T* __restrict__ keys,       // (B, C, G·D)
                              T* __restrict__ values,     // (B, C, G·D)
                              const T* __restrict__ qkv,  // (B, count, H·D + 2 · G·D)
                              std::int64_t tokens, std::int64_t positions, std::int64_t context, std::int64_t start,
                              std::int64_t query_width, std::int64_t width) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < tokens * 2 * width;
       i += stride) {
    const std::int64_t token = i / (2 * width), column = i % (2 * width);
    const T entry = qkv[token * (query_width + 2 * width) + query_width + column];
    const std::int64_t row = (token / positions) * context + start + token % positions;
    T* const to = column < width ? keys : values;
    to[row * width + column % width] = entry;
  }
}

}  // namespace

void attention_append(Device& device, const AttentionCachedArgs& args) {
  const AttentionShape shape = attention_shape(args.qkv, args.heads, args.kv_heads);
  const std::int64_t width = shape.kv_heads * shape.size, tokens = shape.sequences * shape.positions;
  const auto blocks = std::min(blocks_for(tokens * 2 * width, kThreads), 32u * device.gpu().multiprocessors);
  with_device_type(args.qkv.dtype, [&]<typename T>() {
    append_kernel<<<blocks, kThreads, 0, device.stream()>>>(
        static_cast<T*>(args.keys.data), static_cast<T*>(args.values.data), static_cast<const T*>(args.qkv.data),
        tokens, shape.positions, args.keys.shape[1], args.start, shape.out_row(), width);
  });
  check_launch();
}

}  // namespace filigree::cuda
