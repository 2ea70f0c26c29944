// Products of tiles for our attention kernels: tiles of 64 rows in shared memory as fp32, 256 threads, fp32 arithmetic.
//
// Thread (x, y), x = thread % 16 and y = thread / 16, owns rows 4y to 4y + 3 of every result. Of a (64, 64) result it
// owns the columns x, x + 16, x + 32 and x + 48; of a (64, kSize) result the columns 4x to 4x + 3 of each 64. The 16
// threads of a row are half a warp. kSize is the head size rounded up to 64, 128 or 256; the rest is zeros.
#pragma once

#include "kernels/cuda_common.cuh"

namespace filigree::cuda {

constexpr int kTile = 64;
constexpr int kTileThreads = 256;
constexpr int kTileLanes = 16;            // threads of a row
constexpr int kTileRows = 4;              // rows of a thread
constexpr int kTileColumns = 4;           // columns of a thread in a (64, 64) result
constexpr int kWeightStride = kTile + 4;  // floats from row to row of a (64, 64) tile
template <int kSize>
constexpr int kTileStride = kSize + 4;  // floats from row to row of a (64, kSize) tile
// Strides are 4 more than a multiple of 32: eight threads that read 16 bytes each from eight rows, or write them, hit
// each of the 32 banks once.

template <int kSize>
constexpr int kTileFloats = kTile* kTileStride<kSize>;
constexpr int kWeightFloats = kTile * kWeightStride;

__device__ __forceinline__ int tile_x() {
  return static_cast<int>(threadIdx.x) % kTileLanes;
}
__device__ __forceinline__ int tile_y() {
  return static_cast<int>(threadIdx.x) / kTileLanes;
}

// Sum and maximum over the 16 threads of a row.
__device__ __forceinline__ float row_sum(float value) {
  for (int offset = kTileLanes / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
  return value;
}
__device__ __forceinline__ float row_max(float value) {
  for (int offset = kTileLanes / 2; offset > 0; offset /= 2)
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, offset));
  return value;
}

// tile (64, kSize) = rows [first, first + 64) of `from` (rows, size) with `stride` elements from row to row; zeros
// outside of it.
template <int kSize, typename T>
__device__ __forceinline__ void load_tile(float* tile, const T* from, std::int64_t stride, std::int64_t first,
                                          std::int64_t rows, int size) {
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kSize; i += kTileThreads) {
    const int row = i / kSize, column = i % kSize;
    const bool inside = first + row < rows && column < size;
    tile[row * kTileStride<kSize> + column] = inside ? to_float(from[(first + row) * stride + column]) : 0.0f;
  }
}

// dots (64, 64) = left (64, kSize) · right (64, kSize)ᵀ
template <int kSize>
__device__ __forceinline__ void dot_tile(float (&dots)[kTileRows][kTileColumns], const float* left,
                                         const float* right) {
  const float* const rows = left + kTileRows * tile_y() * kTileStride<kSize>;
  const float* const columns = right + tile_x() * kTileStride<kSize>;
#pragma unroll
  for (int i = 0; i < kTileRows; ++i)
#pragma unroll
    for (int j = 0; j < kTileColumns; ++j) dots[i][j] = 0.0f;
#pragma unroll 2
  for (int d = 0; d < kSize; d += 4) {
    float4 a[kTileRows], b[kTileColumns];
#pragma unroll
    for (int i = 0; i < kTileRows; ++i) a[i] = *reinterpret_cast<const float4*>(rows + i * kTileStride<kSize> + d);
#pragma unroll
    for (int j = 0; j < kTileColumns; ++j)
      b[j] = *reinterpret_cast<const float4*>(columns + j * kTileLanes * kTileStride<kSize> + d);
#pragma unroll
    for (int i = 0; i < kTileRows; ++i)
#pragma unroll
      for (int j = 0; j < kTileColumns; ++j) {
        dots[i][j] += a[i].x * b[j].x;
        dots[i][j] += a[i].y * b[j].y;
        dots[i][j] += a[i].z * b[j].z;
        dots[i][j] += a[i].w * b[j].w;
      }
  }
}

// weights (64, 64) = valuesᵀ: a thread's rows become four neighbours in shared memory.
__device__ __forceinline__ void store_transposed(float* weights, const float (&values)[kTileRows][kTileColumns]) {
#pragma unroll
  for (int j = 0; j < kTileColumns; ++j)
    *reinterpret_cast<float4*>(weights + (tile_x() + j * kTileLanes) * kWeightStride + kTileRows * tile_y()) =
        make_float4(values[0][j], values[1][j], values[2][j], values[3][j]);
}

// sums (64, kSize) += weightsᵀ (64, 64) · tile (64, kSize): what was stored transposed is multiplied as it was.
template <int kSize>
__device__ __forceinline__ void accumulate_tile(float (&sums)[kTileRows][kSize / kTileLanes], const float* weights,
                                                const float* tile) {
#pragma unroll 2
  for (int inner = 0; inner < kTile; ++inner) {
    const float4 w = *reinterpret_cast<const float4*>(weights + inner * kWeightStride + kTileRows * tile_y());
    const float row_weights[kTileRows] = {w.x, w.y, w.z, w.w};
#pragma unroll
    for (int part = 0; part < kSize / kTile; ++part) {
      const float4 v =
          *reinterpret_cast<const float4*>(tile + inner * kTileStride<kSize> + part * kTile + 4 * tile_x());
#pragma unroll
      for (int i = 0; i < kTileRows; ++i) {
        sums[i][4 * part] += row_weights[i] * v.x;
        sums[i][4 * part + 1] += row_weights[i] * v.y;
        sums[i][4 * part + 2] += row_weights[i] * v.z;
        sums[i][4 * part + 3] += row_weights[i] * v.w;
      }
    }
  }
}

// Rows [first, first + 64) of `to` (rows, size) = sums · factor[row of this thread].
template <int kSize, typename T>
__device__ __forceinline__ void write_tile(T* to, std::int64_t stride, std::int64_t first, std::int64_t rows, int size,
                                           const float (&sums)[kTileRows][kSize / kTileLanes],
                                           const float (&factors)[kTileRows]) {
#pragma unroll
  for (int i = 0; i < kTileRows; ++i) {
    const std::int64_t row = first + kTileRows * tile_y() + i;
    if (row >= rows) continue;
#pragma unroll
    for (int c = 0; c < kSize / kTileLanes; ++c) {
      const int column = c / 4 * kTile + 4 * tile_x() + c % 4;
      if (column < size) to[row * stride + column] = from_float<T>(sums[i][c] * factors[i]);
    }
  }
}

// Calls body.operator()<kSize>() with the head size rounded up.
template <typename Body>
void with_tile_size(std::int64_t size, Body&& body) {
  if (size <= 64) return body.template operator()<64>();
  if (size <= 128) return body.template operator()<128>();
  require(size <= 256, "attention on a GPU: heads of at most 256 entries");
  body.template operator()<256>();
}

}  // namespace filigree::cuda
