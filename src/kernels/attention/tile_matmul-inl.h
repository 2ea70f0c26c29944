// Products of small fp32 tiles that stay in a core's caches, for attention. Included inside foreach_target.
#if defined(FILIGREE_KERNELS_ATTENTION_TILE_MATMUL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FILIGREE_KERNELS_ATTENTION_TILE_MATMUL_INL_H_
#undef FILIGREE_KERNELS_ATTENTION_TILE_MATMUL_INL_H_
#else
#define FILIGREE_KERNELS_ATTENTION_TILE_MATMUL_INL_H_
#endif

#include "kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace filigree::HWY_NAMESPACE {

// A matrix of floats with any strides; element (row, column) is at data[row · row_stride + column · column_stride].
struct TileOperand {
  const float* data;
  std::int64_t row_stride;
  std::int64_t column_stride;
};

// A block of kTileRows x kTileVectors vectors is summed in registers: 16 sums with the 32 registers of AVX-512, 8 with
// the 16 of AVX2, enough in both to hide the latency of two multiply-adds a cycle.
inline constexpr int kTileRows = 4;
inline constexpr int kTileVectors = HWY_LANES(float) >= 16 ? 4 : 2;

template <bool accumulate, int rows, int vectors>
HWY_INLINE void tile_block(float* c, std::int64_t c_stride, TileOperand a, const float* b, std::int64_t b_stride,
                           std::int64_t depth) {
  const FloatTag f;
  FloatVector sums[rows][vectors];
  for (int r = 0; r < rows; ++r)
    for (int v = 0; v < vectors; ++v)
      sums[r][v] = accumulate ? hn::LoadU(f, c + r * c_stride + v * kLanes) : hn::Zero(f);
  for (std::int64_t k = 0; k < depth; ++k) {
    FloatVector b_row[vectors];
    for (int v = 0; v < vectors; ++v) b_row[v] = hn::LoadU(f, b + k * b_stride + v * kLanes);
    for (int r = 0; r < rows; ++r) {
      const FloatVector value = splat(a.data[r * a.row_stride + k * a.column_stride]);
      for (int v = 0; v < vectors; ++v) sums[r][v] = hn::MulAdd(value, b_row[v], sums[r][v]);
    }
  }
  for (int r = 0; r < rows; ++r)
    for (int v = 0; v < vectors; ++v) hn::StoreU(sums[r][v], f, c + r * c_stride + v * kLanes);
}

template <bool accumulate, int rows>
HWY_INLINE void tile_rows(float* c, std::int64_t c_stride, std::int64_t columns, TileOperand a, const float* b,
                          std::int64_t b_stride, std::int64_t depth) {
  std::int64_t column = 0;
  for (; column + kTileVectors * kLanes <= columns; column += kTileVectors * kLanes)
    tile_block<accumulate, rows, kTileVectors>(c + column, c_stride, a, b + column, b_stride, depth);
  for (; column < columns; column += kLanes)
    tile_block<accumulate, rows, 1>(c + column, c_stride, a, b + column, b_stride, depth);
}

// c (rows, columns) = [c +] a (rows, depth) · b (depth, columns). columns is a multiple of kLanes. c and b are
// row-major with the given strides. Each element is summed over depth in order.
template <bool accumulate>
void tile_matmul(float* c, std::int64_t c_stride, std::int64_t rows, std::int64_t columns, TileOperand a,
                 const float* b, std::int64_t b_stride, std::int64_t depth) {
  std::int64_t row = 0;
  for (; row + kTileRows <= rows; row += kTileRows, a.data += kTileRows * a.row_stride, c += kTileRows * c_stride)
    tile_rows<accumulate, kTileRows>(c, c_stride, columns, a, b, b_stride, depth);
  for (; row < rows; ++row, a.data += a.row_stride, c += c_stride)
    tile_rows<accumulate, 1>(c, c_stride, columns, a, b, b_stride, depth);
}

}  // namespace filigree::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
