#include "kernels/nm/nm_metadata_cuda.h"

#include <algorithm>

#include "kernels/cuda_common.cuh"

namespace filigree::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::uint32_t kOne = 0x3f80;  // 1 in bf16

unsigned int blocks_of(const Device& device, std::int64_t count) {
  return std::min<unsigned int>(blocks_for(count, kThreads), 32u * device.gpu().multiprocessors);
}

// A block writes kTiles tiles that lie side by side, two words a thread at a time: writes are whole lines, and what one
// tile leaves of a mask row's sector the next ones find in the cache. Floor: 1/8 byte a weight in and out, 0.06 ps at
// 4.3 TB/s (H200).
constexpr int kTiles = 8;

struct Order {
  int rows = 0, columns = 0;
  std::int64_t row_step = 0, column_step = 0;
};

__global__ void __launch_bounds__(kThreads)
    metadata_kernel(std::uint32_t* __restrict__ metadata,   // pairs of words
                    const std::uint8_t* __restrict__ mask,  // (rows, columns / 8)
                    const std::uint16_t* __restrict__ places, std::int64_t columns, Order order) {
  const int tile_row = order.columns / kWordEntries, pairs = order.rows * tile_row / 2;
  const std::int64_t tiles_wide = columns / order.columns;
  for (int i = threadIdx.x; i < kTiles * pairs; i += kThreads) {
    const std::int64_t tile = static_cast<std::int64_t>(blockIdx.x) * kTiles + i / pairs;
    if (tile >= tiles_wide) break;
    const int word = i % pairs * 2;
    std::uint32_t pair = 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int place = places[word + half];
      const std::int64_t row = static_cast<std::int64_t>(blockIdx.y) * order.rows + place / tile_row;
      const std::int64_t column = tile * order.columns + place % tile_row * kWordEntries;
      const std::uint32_t bits = *reinterpret_cast<const std::uint16_t*>(mask + row * (columns / 8) + column / 8);
      pair |= word_metadata(bits) << 16 * half;
    }
    metadata[(blockIdx.y * order.row_step + tile * order.column_step + word) / 2] = pair;
  }
}

// Eight bf16 of mask bits.
__device__ __forceinline__ uint4 ones_of(std::uint32_t bits) {
  std::uint32_t pairs[4];
#pragma unroll
  for (int i = 0; i < 4; ++i)
    pairs[i] = (bits >> 2 * i & 1u ? kOne : 0u) | (bits >> (2 * i + 1) & 1u ? kOne : 0u) << 16;
  return {pairs[0], pairs[1], pairs[2], pairs[3]};
}

__global__ void __launch_bounds__(kThreads)
    ones_kernel(uint4* __restrict__ dense, const std::uint8_t* __restrict__ mask, std::int64_t count) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += stride)
    dense[i] = ones_of(mask[i]);
}

__global__ void __launch_bounds__(kThreads)
    spelled_kernel(uint4* __restrict__ dense, std::int64_t words, std::uint32_t divisor) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < words; i += stride) {
    const std::uint32_t bits = spelled_bits(static_cast<std::uint32_t>(i) / divisor % kWordPatterns);
    dense[2 * i] = ones_of(bits);
    dense[2 * i + 1] = ones_of(bits >> 8);
  }
}

// Integer sums, so that their order does not matter.
__global__ void __launch_bounds__(kThreads)
    difference_kernel(unsigned long long* __restrict__ sums, const std::uint16_t* __restrict__ y,
                      const std::uint16_t* __restrict__ reference, std::int64_t count, float relative, float absolute) {
  unsigned long long wrong = 0, fingerprint = 0;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += stride) {
    const float got = __uint_as_float(static_cast<std::uint32_t>(y[i]) << 16);
    const float want = __uint_as_float(static_cast<std::uint32_t>(reference[i]) << 16);
    wrong += fabsf(got - want) <= relative * fabsf(want) + absolute ? 0 : 1;
    // Multiples of an odd number that differs from place to place: exchanged elements change the sum.
    fingerprint += (y[i] + 1ull) * (2 * static_cast<unsigned long long>(i) + 1) * 0x9e3779b97f4a7c15ull;
  }
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    wrong += __shfl_xor_sync(0xffffffffu, wrong, offset);
    fingerprint += __shfl_xor_sync(0xffffffffu, fingerprint, offset);
  }
  if (threadIdx.x % kWarp == 0) {
    atomicAdd(&sums[0], wrong);
    atomicAdd(&sums[1], fingerprint);
  }
}

}  // namespace

void write_metadata(Device& device, const Tensor& metadata, const Tensor& mask, std::int64_t columns,
                    const MetadataTiles& tiles, const std::uint16_t* places) {
  const std::int64_t rows = mask.shape[0];
  const dim3 grid(blocks_for(columns / tiles.columns, kTiles), static_cast<unsigned int>(rows / tiles.rows));
  const Order order{tiles.rows, tiles.columns, tiles.row_step, tiles.column_step};
  metadata_kernel<<<grid, kThreads, 0, device.stream()>>>(static_cast<std::uint32_t*>(metadata.data),
                                                          mask.as<std::uint8_t>(), places, columns, order);
  check_launch();
}

void write_ones(Device& device, const Tensor& dense, const Tensor& mask) {
  const std::int64_t count = mask.count();
  ones_kernel<<<blocks_of(device, count), kThreads, 0, device.stream()>>>(static_cast<uint4*>(dense.data),
                                                                          mask.as<std::uint8_t>(), count);
  check_launch();
}

void write_spelled(Device& device, const Tensor& dense, std::uint32_t divisor) {
  const std::int64_t words = dense.count() / kWordEntries;
  spelled_kernel<<<blocks_of(device, words), kThreads, 0, device.stream()>>>(static_cast<uint4*>(dense.data), words,
                                                                             divisor);
  check_launch();
}

Difference difference(Device& device, const Tensor& y, const Tensor& reference, float relative, float absolute) {
  const OwnedTensor sums = device.memory().tensor(Purpose::workspace, DType::u8, {2 * sizeof(unsigned long long)});
  difference_kernel<<<blocks_of(device, y.count()), kThreads, 0, device.stream()>>>(
      static_cast<unsigned long long*>(sums.view().data), static_cast<const std::uint16_t*>(y.data),
      static_cast<const std::uint16_t*>(reference.data), y.count(), relative, absolute);
  check_launch();
  unsigned long long host[2] = {};
  device.copy_to_host(host, sums);
  return {host[0], host[1]};
}

}  // namespace filigree::cuda
