#include "kernels/cuda_common.cuh"
#include "kernels/nm/nm_prune_24_cuda.h"

// A block prunes 128 x 128 entries, a thread 4 x 4 of them at a time: it holds all that the choice in four columns
// needs. The result is transposed in shared memory, so that both sides are moved in lines of 128 bytes.
//
// Floor: every weight is read and written as half a value and a mask bit, 2 x (1 + 1/8) bytes; at 4.3 TB/s (H200, copy)
// that is 0.52 ps a weight: 2048 x 8192 8.8 us, 9216 x 36864 0.18 ms. A thread has about 240 instructions for a 4 x 4
// tile at that speed and needs about 200.

namespace filigree::cuda {
namespace {

constexpr int kTile = 128;          // rows and columns of a block
constexpr int kGroups = kTile / 4;  // column groups: one a lane
constexpr int kWarps = 8;
constexpr int kBands = kGroups / kWarps;  // row groups of a warp, one under the other: 16 bits of each column's mask
constexpr int kMaskStride = 12;           // 16-bit words between columns, 8 used: fewer bank conflicts
static_assert(kGroups == kWarp && kBands == 4);

struct Shared {
  uint2 mask[kTile][2];                                   // of forward: (row, 64 columns)
  std::uint32_t values[kTile][kGroups + 1];               // of out: (column, pair of values)
  alignas(8) std::uint16_t out_mask[kTile][kMaskStride];  // (column, 16 rows)
};
// Column c of the tile lies in this row of the arrays above: lanes, which hold every fourth column, then hit all banks.
__device__ __forceinline__ int place_of(int column) {
  return column % 4 * kGroups + column / 4;
}

struct Prune24Args {
  std::uint32_t* out_values = nullptr;    // (K, N/4) pairs of bf16
  std::uint8_t* out_mask = nullptr;       // (K, N/8)
  const std::uint32_t* values = nullptr;  // (N, K/4) pairs
  const std::uint8_t* mask = nullptr;     // (N, K/8)
  std::int64_t rows = 0, columns = 0;     // N, K
  std::int64_t row_begin = 0, row_end = 0;
};

// An entry as a number that orders a column group: kept before not kept, then by magnitude, then the upper row. It
// holds all of the value: kept 1 | magnitude 15 | 3 - row 2 | sign 1 bits. Not kept: the row alone, which reads as +0.
__device__ __forceinline__ std::uint32_t key_of(std::uint32_t value, int row) {
  return 1u << 18 | (value & 0x7fffu) << 3 | static_cast<std::uint32_t>(3 - row) << 1 | (value >> 15 & 1u);
}
__device__ __forceinline__ std::uint32_t value_of(std::uint32_t key) {
  return (key >> 3 & 0x7fffu) | (key & 1u) << 15;
}
__device__ __forceinline__ std::uint32_t row_bit(std::uint32_t key) {
  return 8u >> (key >> 1 & 3u);
}

struct Column {
  std::uint32_t pair;  // the two values that stay, upper row first
  std::uint32_t bits;  // their rows
};
__device__ __forceinline__ Column choose(const std::uint32_t (&keys)[4]) {
  const std::uint32_t a = max(keys[0], keys[1]), b = min(keys[0], keys[1]);
  const std::uint32_t c = max(keys[2], keys[3]), d = min(keys[2], keys[3]);
  const std::uint32_t first = max(a, c), second = max(min(a, c), max(b, d));
  const bool in_order = (first & 6u) > (second & 6u);
  const std::uint32_t upper = in_order ? first : second, lower = in_order ? second : first;
  return {value_of(upper) | value_of(lower) << 16, row_bit(first) | row_bit(second)};
}

__global__ void __launch_bounds__(kWarps* kWarp, 3) prune_24_kernel(Prune24Args args) {
  __shared__ Shared shared;
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const std::int64_t row0 = args.row_begin + static_cast<std::int64_t>(blockIdx.y) * kTile;
  const std::int64_t column0 = static_cast<std::int64_t>(blockIdx.x) * kTile;

  std::uint32_t pairs[kBands][4];  // (row group, row): this lane's two values
  const bool inside = column0 + 4 * lane < args.columns;
#pragma unroll
  for (int band = 0; band < kBands; ++band)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::int64_t row = row0 + 4 * (kBands * warp + band) + i;
      pairs[band][i] = inside && row < args.row_end ? args.values[row * (args.columns / 4) + column0 / 4 + lane] : 0u;
    }
  {
    const int row = threadIdx.x / 2, half = threadIdx.x % 2;
    uint2 bits = {0u, 0u};
    if (row0 + row < args.row_end && column0 + 64 * half < args.columns)
      bits = *reinterpret_cast<const uint2*>(args.mask + (row0 + row) * (args.columns / 8) + column0 / 8 + 8 * half);
    shared.mask[row][half] = bits;
  }
  __syncthreads();

  std::uint32_t column_bits[4] = {};
#pragma unroll
  for (int band = 0; band < kBands; ++band) {
    const int group = kBands * warp + band;
    std::uint32_t keys[4][4];  // (column, row)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const auto* bytes = reinterpret_cast<const std::uint8_t*>(shared.mask[4 * group + i]);
      const unsigned kept = bytes[lane / 2] >> (lane % 2 * 4);
      const std::uint32_t left = key_of(pairs[band][i] & 0xffffu, i), right = key_of(pairs[band][i] >> 16, i);
      const auto none = static_cast<std::uint32_t>(3 - i) << 1;
      // Two of the four are kept, so each place is the left or the right one by what its neighbours are.
      keys[0][i] = kept & 1u ? left : none;
      keys[1][i] = kept & 2u ? (kept & 1u ? right : left) : none;
      keys[2][i] = kept & 4u ? (kept & 8u ? left : right) : none;
      keys[3][i] = kept & 8u ? right : none;
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const Column column = choose(keys[j]);
      shared.values[kGroups * j + lane][group] = column.pair;
      column_bits[j] |= column.bits << (4 * band);
    }
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) shared.out_mask[kGroups * j + lane][warp] = static_cast<std::uint16_t>(column_bits[j]);
  __syncthreads();

  if (row0 + 4 * lane < args.row_end)
    for (int column = warp; column < kTile; column += kWarps)
      if (column0 + column < args.columns)
        args.out_values[(column0 + column) * (args.rows / 4) + row0 / 4 + lane] = shared.values[place_of(column)][lane];
  const int column = threadIdx.x / 2, half = threadIdx.x % 2;
  if (column0 + column < args.columns && row0 + 64 * half < args.row_end)
    *reinterpret_cast<uint2*>(args.out_mask + (column0 + column) * (args.rows / 8) + row0 / 8 + 8 * half) =
        *reinterpret_cast<const uint2*>(&shared.out_mask[place_of(column)][4 * half]);
}

}  // namespace

bool takes_prune_24(const NmMatrix& out, const NmMatrix& forward, std::int64_t row_begin, std::int64_t row_end) {
  bool whole = true;
  for (const std::int64_t extent : {forward.rows, forward.columns, row_begin, row_end})
    whole = whole && extent % 64 == 0;
  return whole && forward.pattern == Pattern{2, 4} && forward.values.dtype == DType::bf16 &&
         out.values.dtype == DType::bf16;
}

void prune_24(Device& device, const NmMatrix& out, const NmMatrix& forward, std::int64_t row_begin,
              std::int64_t row_end) {
  const Prune24Args args{.out_values = static_cast<std::uint32_t*>(out.values.data),
                         .out_mask = out.mask.as<std::uint8_t>(),
                         .values = static_cast<const std::uint32_t*>(forward.values.data),
                         .mask = forward.mask.as<std::uint8_t>(),
                         .rows = forward.rows,
                         .columns = forward.columns,
                         .row_begin = row_begin,
                         .row_end = row_end};
  const dim3 grid(blocks_for(forward.columns, kTile), blocks_for(row_end - row_begin, kTile));
  prune_24_kernel<<<grid, kWarps * kWarp, 0, device.stream()>>>(args);
  check_launch();
}

}  // namespace filigree::cuda
