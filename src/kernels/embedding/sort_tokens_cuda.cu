#include "kernels/embedding/sort_tokens_cuda.h"

#include <bit>
#include <cub/device/device_radix_sort.cuh>

#include "kernels/cuda_common.cuh"

namespace filigree::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void places_kernel(std::int32_t* places, std::int32_t count) {
  const auto i = static_cast<std::int32_t>(blockIdx.x * kThreads + threadIdx.x);
  if (i < count) places[i] = i;
}

// cub's call, which only says how many bytes it needs when `temporary` is null.
std::size_t sort(void* temporary, std::size_t bytes, std::int32_t* sorted, std::int32_t* places,
                 const std::int32_t* tokens, const std::int32_t* in_order, std::int64_t count, std::int64_t vocabulary,
                 cudaStream_t stream) {
  const int bits = std::max(1, static_cast<int>(std::bit_width(static_cast<std::uint64_t>(vocabulary - 1))));
  check(cub::DeviceRadixSort::SortPairs(temporary, bytes, tokens, sorted, in_order, places,
                                        static_cast<std::int32_t>(count), 0, bits, stream));
  return bytes;
}

std::size_t list_bytes(std::int64_t count) {
  return (static_cast<std::size_t>(count) * sizeof(std::int32_t) + 255) / 256 * 256;
}

}  // namespace

std::size_t sort_tokens_bytes(std::int64_t count, std::int64_t vocabulary) {
  return list_bytes(count) + sort(nullptr, 0, nullptr, nullptr, nullptr, nullptr, count, vocabulary, nullptr);
}

void sort_tokens(std::int32_t* sorted, std::int32_t* places, const std::int32_t* tokens, std::int64_t count,
                 std::int64_t vocabulary, void* workspace, CUstream_st* stream) {
  auto* in_order = static_cast<std::int32_t*>(workspace);
  places_kernel<<<blocks_for(count, kThreads), kThreads, 0, stream>>>(in_order, static_cast<std::int32_t>(count));
  check_launch();
  const std::size_t bytes = sort_tokens_bytes(count, vocabulary) - list_bytes(count);
  sort(static_cast<std::byte*>(workspace) + list_bytes(count), bytes, sorted, places, tokens, in_order, count,
       vocabulary, stream);
}

}  // namespace filigree::cuda
