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

// A block writes what belongs to a row of tiles, kColumns entries wide. The metadata of its groups is computed 32
// entries at a time on the way into shared memory; from there each thread gathers words of eight groups, always the
// same places of one tile after the other. Both sides move whole lines of 128 bytes. Floor: 1/8 byte a weight in and
// out, 0.06 ps at 4.3 TB/s (H200); gathering costs about as much, 5 instructions a group.
constexpr int kColumns = 1024, kWords = kColumns / 32, kMostRows = 128;
constexpr int kStride = kWords + 1;  // words from row to row: a tile's rows begin in different banks

struct Order {
  int rows = 0, columns = 0;  // of a tile
  bool rightwards = true;
};

__global__ void __launch_bounds__(kThreads)
    metadata_kernel(std::uint32_t* __restrict__ metadata,      // eight groups a word
                    const std::uint32_t* __restrict__ mask,    // (rows, columns / 32)
                    const std::uint16_t* __restrict__ places,  // of a tile's groups
                    std::int64_t columns, Order order) {
  __shared__ std::uint32_t groups[kMostRows * kStride];
  const std::int64_t row0 = static_cast<std::int64_t>(blockIdx.y) * order.rows;
  const std::int64_t column0 = static_cast<std::int64_t>(blockIdx.x) * kColumns;
  const int wide = static_cast<int>(min(static_cast<std::int64_t>(kColumns), columns - column0));  // entries
  const int lane = threadIdx.x % kWarp;
  if (32 * lane < wide) {
    const std::uint32_t* from = mask + row0 * (columns / 32) + column0 / 32 + lane;
    for (int row = threadIdx.x / kWarp; row < order.rows; row += kThreads / kWarp)
      groups[row * kStride + lane] = metadata_of(from[row * (columns / 32)]);
  }
  __syncthreads();

  const int tile_row = order.columns / kGroupEntries;                  // groups
  const int words = order.rows * order.columns / (8 * kGroupEntries);  // of a tile: a power of two, 64 at least
  const int tiles = wide / order.columns, together = max(1, kThreads / words);
  const std::int64_t tiles_wide = columns / order.columns;
  for (int word = threadIdx.x % words; word < words; word += kThreads) {
    std::uint32_t bits[8];  // where each group lies, the same in every tile
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int place = places[8 * word + i];
      bits[i] = static_cast<std::uint32_t>(place / tile_row * (32 * kStride) + place % tile_row * kGroupEntries);
    }
    for (int tile = threadIdx.x / words % together; tile < tiles; tile += together) {
      const std::uint32_t* from = groups + tile * (order.columns / 32);
      std::uint32_t gathered = 0;
#pragma unroll
      for (int i = 0; i < 8; ++i) gathered |= (from[bits[i] / 32] >> bits[i] % 32 & 15u) << 4 * i;
      const std::int64_t right = column0 / order.columns + tile;
      const std::int64_t number = order.rightwards ? blockIdx.y * tiles_wide + right : right * gridDim.y + blockIdx.y;
      metadata[number * words + word] = gathered;
    }
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
    spelled_kernel(std::uint8_t* __restrict__ mask, std::int64_t count, std::uint32_t divisor) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += stride) {
    const auto group = static_cast<std::uint32_t>(2 * i);
    mask[i] = static_cast<std::uint8_t>(group_pattern(group / divisor % kGroupPatterns) |
                                        group_pattern((group + 1) / divisor % kGroupPatterns) << 4);
  }
}

__global__ void __launch_bounds__(kThreads) scrambled_kernel(std::uint8_t* __restrict__ mask, std::int64_t count) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += stride) {
    std::uint64_t hash = (static_cast<std::uint64_t>(i) + 1) * 0x9e3779b97f4a7c15ull;
    hash = (hash ^ hash >> 32) * 0xd6e8feb86659fd93ull;
    const auto low = static_cast<std::uint32_t>(hash >> 32 & 0xffff), high = static_cast<std::uint32_t>(hash >> 48);
    mask[i] = static_cast<std::uint8_t>(group_pattern(low * kGroupPatterns >> 16) |
                                        group_pattern(high * kGroupPatterns >> 16) << 4);
  }
}

__global__ void __launch_bounds__(kThreads)
    differing_words_kernel(unsigned long long* __restrict__ sum, const std::uint32_t* __restrict__ a,
                           const std::uint32_t* __restrict__ b, std::int64_t count) {
  unsigned long long differing = 0;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count; i += stride)
    differing += a[i] != b[i] ? 1 : 0;
  if (differing != 0) atomicAdd(sum, differing);
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
  const Order order{tiles.rows, tiles.columns, tiles.rightwards};
  require(order.rows <= kMostRows && kColumns % order.columns == 0 && rows % order.rows == 0 &&
              columns % order.columns == 0,
          "write_metadata: the matrix does not consist of such tiles");
  const dim3 grid(blocks_for(columns, kColumns), static_cast<unsigned int>(rows / tiles.rows));
  metadata_kernel<<<grid, kThreads, 0, device.stream()>>>(
      static_cast<std::uint32_t*>(metadata.data), static_cast<const std::uint32_t*>(mask.data), places, columns, order);
  check_launch();
}

void write_ones(Device& device, const Tensor& dense, const Tensor& mask) {
  const std::int64_t count = mask.count();
  ones_kernel<<<blocks_of(device, count), kThreads, 0, device.stream()>>>(static_cast<uint4*>(dense.data),
                                                                          mask.as<std::uint8_t>(), count);
  check_launch();
}

void write_spelled(Device& device, const Tensor& mask, std::uint32_t divisor) {
  const std::int64_t count = mask.count();
  spelled_kernel<<<blocks_of(device, count), kThreads, 0, device.stream()>>>(mask.as<std::uint8_t>(), count, divisor);
  check_launch();
}

void write_scrambled(Device& device, const Tensor& mask) {
  const std::int64_t count = mask.count();
  scrambled_kernel<<<blocks_of(device, count), kThreads, 0, device.stream()>>>(mask.as<std::uint8_t>(), count);
  check_launch();
}

std::uint64_t differing_words(Device& device, const Tensor& a, const Tensor& b) {
  const OwnedTensor sum = device.memory().tensor(Purpose::workspace, DType::u8, {sizeof(unsigned long long)});
  const auto count = static_cast<std::int64_t>(a.bytes() / sizeof(std::uint32_t));
  differing_words_kernel<<<blocks_of(device, count), kThreads, 0, device.stream()>>>(
      static_cast<unsigned long long*>(sum.view().data), static_cast<const std::uint32_t*>(a.data),
      static_cast<const std::uint32_t*>(b.data), count);
  check_launch();
  unsigned long long host = 0;
  device.copy_to_host(&host, sum);
  return host;
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
