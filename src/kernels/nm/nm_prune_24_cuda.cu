#include "kernels/cuda_common.cuh"
#include "kernels/nm/nm_prune_24_cuda.h"

// A block prunes 128 x 128 entries, a thread 4 x 4 of them at a time: it holds all that the choice in four columns
// needs. The result is transposed in shared memory, so that both sides are moved in lines of 128 bytes.
//
// Floor: every weight is read and written as half a value and a mask bit, 2 x (1 + 1/8) bytes; at 4.3 TB/s (H200, copy)
// that is 0.52 ps a weight: 2048 x 8192 8.8 us, 9216 x 36864 0.18 ms. At that speed a 4 x 4 tile may cost its warp 240
// instructions, and it costs about 220: they are counted here.

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

// An entry as a number that orders a column group: kept before not kept, then by magnitude, then the upper row. It also
// holds the value. From the top: kept 1, magnitude 15, row 4 (one of them set, the upper row's highest), sign 1 bits.
// Not kept: the row alone, which reads as +0.
constexpr std::uint32_t kKept = 0x80000000u, kFirstRow = 0x8000u, kRows = 0xf000u, kSign = 0x800u;

struct Column {
  std::uint32_t pair;  // the two values that stay, the upper row's in the lower half
  std::uint32_t rows;  // theirs, in the places of kRows
};
__device__ __forceinline__ Column choose(const std::uint32_t (&keys)[4]) {
  const std::uint32_t a = max(keys[0], keys[1]), b = min(keys[0], keys[1]);
  const std::uint32_t c = max(keys[2], keys[3]), d = min(keys[2], keys[3]);
  const std::uint32_t first = max(a, c), second = __vimax3_u32(min(a, c), b, d);
  const std::uint32_t low = __byte_perm(first, second, 0x5410);   // second | first: rows and signs
  const std::uint32_t high = __byte_perm(first, second, 0x7632);  // second | first: magnitudes, kept bits above
  const std::uint32_t pair = (high & 0x7fff7fffu) | (low << 4 & 0x80008000u);
  // Compared with its halves exchanged, `low` says which of the two has the upper row.
  const bool in_order = __byte_perm(low, 0, 0x1032) > low;
  return {in_order ? pair : __byte_perm(pair, 0, 0x1032), (first | second) & kRows};
}

__global__ void __launch_bounds__(kWarps* kWarp, 4) prune_24_kernel(Prune24Args args) {
  __shared__ Shared shared;
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const std::int64_t row0 = args.row_begin + static_cast<std::int64_t>(blockIdx.y) * kTile;
  const std::int64_t column0 = static_cast<std::int64_t>(blockIdx.x) * kTile;

  std::uint32_t pairs[kBands][4] = {};  // (row group, row): this lane's two values
  // A tile is cut at a multiple of 64, if at all: a warp's rows are all inside or none.
  if (column0 + 4 * lane < args.columns && row0 + 4 * kBands * warp < args.row_end) {
    const std::int64_t stride = args.columns / 4;
    const std::uint32_t* from = args.values + (row0 + 4 * kBands * warp) * stride + column0 / 4 + lane;
#pragma unroll
    for (int band = 0; band < kBands; ++band)
#pragma unroll
      for (int i = 0; i < 4; ++i) pairs[band][i] = from[(4 * band + i) * stride];
  }
  {
    const int row = threadIdx.x / 2, half = threadIdx.x % 2;
    uint2 bits = {0u, 0u};
    if (row0 + row < args.row_end && column0 + 64 * half < args.columns)
      bits = *reinterpret_cast<const uint2*>(args.mask + (row0 + row) * (args.columns / 8) + column0 / 8 + 8 * half);
    shared.mask[row][half] = bits;
  }
  __syncthreads();

  std::uint32_t column_rows[4] = {};  // bit 15 - r: row r of the warp's 16
#pragma unroll
  for (int band = 0; band < kBands; ++band) {
    const int group = kBands * warp + band;
    std::uint32_t keys[4][4];  // (column, row)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const auto* bytes = reinterpret_cast<const std::uint8_t*>(shared.mask[4 * group + i]);
      const unsigned kept = bytes[lane / 2] >> (lane % 2 * 4);
      const std::uint32_t none = kFirstRow >> i, pair = pairs[band][i];
      const std::uint32_t left = pair << 16 | (kKept | none) | (pair >> 4 & kSign);
      const std::uint32_t right = (pair & 0xffff0000u) | (kKept | none) | (pair >> 20 & kSign);
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
      column_rows[j] |= column.rows >> (4 * band);
    }
  }
#pragma unroll
  for (int j = 0; j < 4; ++j)
    shared.out_mask[kGroups * j + lane][warp] = static_cast<std::uint16_t>(__brev(column_rows[j]) >> 16);
  __syncthreads();

  if (row0 + 4 * lane < args.row_end) {
    // A warp writes every eighth column: their places follow each other in steps of two.
    const std::int64_t stride = kWarps * (args.rows / 4);
    std::uint32_t* to = args.out_values + (column0 + warp) * (args.rows / 4) + row0 / 4 + lane;
    const int place = place_of(warp);
    constexpr int kHalf = kTile / kWarps / 2;
#pragma unroll
    for (int n = 0; n < kHalf; ++n) to[n * stride] = shared.values[place + 2 * n][lane];
    if (column0 + kTile <= args.columns) {
#pragma unroll
      for (int n = kHalf; n < 2 * kHalf; ++n) to[n * stride] = shared.values[place + 2 * n][lane];
    }
  }
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
