// bf16 products on AMX tiles, and the packing that they want. For the attention kernels; include it only from files
// that run behind amx_usable(). Everything after the includes is compiled for AMX whatever the command line says.
//
// A tile register holds 16 rows of 64 bytes: 16 x 32 bf16 of a left operand A, or 16 x 16 fp32 of a result, or 16 x 16
// pairs of bf16 of a right operand B, where a pair holds B(2k, n) and B(2k + 1, n).
#pragma once

#include <hwy/base.h>
#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "core/dtype.h"

namespace filigree {

// Whether the processor has AMX for bf16 and the system lets this process use it.
bool amx_usable();

}  // namespace filigree

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,amx-tile,amx-bf16")
namespace filigree::amx {

inline constexpr std::int64_t kBlock = 32;  // rows and columns of a result block: 2 x 2 tile registers

// While one lives, this thread's tile registers are all 16 x 64 bytes.
class TileSession {
 public:
  TileSession() {
    struct alignas(64) {
      std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
      std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } config;
    static_assert(sizeof(config) == 64);
    asm volatile("" : : "m"(config));  // g++ 12's intrinsic does not say that it reads all of it
    _tile_loadconfig(&config);
  }
  ~TileSession() { _tile_release(); }
  TileSession(const TileSession&) = delete;
  TileSession& operator=(const TileSession&) = delete;
};

// A left operand: 32 rows of a tile step (32 columns) are `stride` entries apart, tile steps `step` entries.
struct LeftOperand {
  const bf16* data;
  std::int64_t stride;
  std::int64_t step = 32;  // a plain row-major matrix
};

// c (32, 32) = [c +] a (32, depth) · b (depth, 32); depth is a multiple of 32, b in pairs. Strides count elements of c
// and pairs of b.
template <bool accumulate>
inline void block_product(float* c, std::int64_t c_stride, LeftOperand a, const std::uint32_t* b, std::int64_t b_stride,
                          std::int64_t depth) {
  const std::int64_t c_bytes = c_stride * 4, a_bytes = a.stride * 2, b_bytes = b_stride * 4;
  asm volatile("" : : : "memory");  // g++ 12's tile loads do not say that they read memory
  if constexpr (accumulate) {
    _tile_loadd(0, c, c_bytes);
    _tile_loadd(1, c + 16, c_bytes);
    _tile_loadd(2, c + 16 * c_stride, c_bytes);
    _tile_loadd(3, c + 16 * c_stride + 16, c_bytes);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (std::int64_t k = 0; k < depth; k += 32, a.data += a.step, b += 16 * b_stride) {
    _tile_loadd(4, a.data, a_bytes);
    _tile_loadd(6, b, b_bytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b + 16, b_bytes);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a.data + 16 * a.stride, a_bytes);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, c, c_bytes);
  _tile_stored(1, c + 16, c_bytes);
  _tile_stored(2, c + 16 * c_stride, c_bytes);
  _tile_stored(3, c + 16 * c_stride + 16, c_bytes);
}

// The same for c (rows, columns), multiples of 32, and a plain a of stride a_stride.
template <bool accumulate>
inline void product(float* c, std::int64_t c_stride, std::int64_t rows, std::int64_t columns, const bf16* a,
                    std::int64_t a_stride, const std::uint32_t* b, std::int64_t b_stride, std::int64_t depth) {
  for (std::int64_t row = 0; row < rows; row += kBlock)
    for (std::int64_t column = 0; column < columns; column += kBlock)
      block_product<accumulate>(c + row * c_stride + column, c_stride, {a + row * a_stride, a_stride}, b + column,
                                b_stride, depth);
}

// to (16, 16) = transpose of from (16, 16), 32-bit words: rows of 4 x 4 words first, then the 4 x 4 blocks.
inline void transpose_words_16(__m512i* to, const __m512i* from) {
  __m512i half[16], quad[16];
  for (int i = 0; i < 16; i += 2) {
    half[i] = _mm512_unpacklo_epi32(from[i], from[i + 1]);
    half[i + 1] = _mm512_unpackhi_epi32(from[i], from[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    quad[i] = _mm512_unpacklo_epi64(half[i], half[i + 2]);
    quad[i + 1] = _mm512_unpackhi_epi64(half[i], half[i + 2]);
    quad[i + 2] = _mm512_unpacklo_epi64(half[i + 1], half[i + 3]);
    quad[i + 3] = _mm512_unpackhi_epi64(half[i + 1], half[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {  // quad[i + 4b]: in 128-bit lane l, words 4b..4b+3 of column 4l + i
    const __m512i low01 = _mm512_shuffle_i32x4(quad[i], quad[i + 4], 0x44);
    const __m512i high01 = _mm512_shuffle_i32x4(quad[i], quad[i + 4], 0xee);
    const __m512i low23 = _mm512_shuffle_i32x4(quad[i + 8], quad[i + 12], 0x44);
    const __m512i high23 = _mm512_shuffle_i32x4(quad[i + 8], quad[i + 12], 0xee);
    to[i] = _mm512_shuffle_i32x4(low01, low23, 0x88);
    to[i + 4] = _mm512_shuffle_i32x4(low01, low23, 0xdd);
    to[i + 8] = _mm512_shuffle_i32x4(high01, high23, 0x88);
    to[i + 12] = _mm512_shuffle_i32x4(high01, high23, 0xdd);
  }
}

// to (columns, rows) = transpose of from (rows, columns), 32-bit words; both extents are multiples of 16.
inline void transpose_words(std::uint32_t* to, std::int64_t to_stride, const std::uint32_t* from,
                            std::int64_t from_stride, std::int64_t rows, std::int64_t columns) {
  for (std::int64_t row = 0; row < rows; row += 16)
    for (std::int64_t column = 0; column < columns; column += 16) {
      __m512i in[16], out[16];
      for (std::int64_t i = 0; i < 16; ++i) in[i] = _mm512_loadu_si512(from + (row + i) * from_stride + column);
      transpose_words_16(out, in);
      for (std::int64_t i = 0; i < 16; ++i) _mm512_storeu_si512(to + (column + i) * to_stride + row, out[i]);
    }
}

// A row of bf16 seen as 32-bit words (two entries each).
inline std::uint32_t* words(bf16* row) {
  return reinterpret_cast<std::uint32_t*>(row);
}

// The part of a matrix that exists; packing fills up to whole tiles with zeros.
struct Extent {
  std::int64_t rows, columns;
};

// 32 entries of a row of which `valid` exist, the others 0.
inline __m512i load_32(const bf16* from, std::int64_t valid) {
  if (valid >= 32) return _mm512_loadu_si512(from);
  return valid <= 0 ? _mm512_setzero_si512() : _mm512_maskz_loadu_epi16((1u << valid) - 1u, from);
}

// 16 entries in the lower halves of words.
inline __m512i load_16(const bf16* from, std::int64_t valid) {
  if (valid >= 16) return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  if (valid <= 0) return _mm512_setzero_si512();
  return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(static_cast<__mmask16>((1u << valid) - 1u), from));
}

// to (rows, columns) = from.
inline void copy_rows(bf16* to, std::int64_t to_stride, Extent to_extent, const bf16* from, std::int64_t from_stride,
                      Extent from_extent) {
  for (std::int64_t row = 0; row < to_extent.rows; ++row)
    for (std::int64_t column = 0; column < to_extent.columns; column += 32) {
      const std::int64_t valid = row < from_extent.rows ? from_extent.columns - column : 0;
      _mm512_storeu_si512(to + row * to_stride + column, load_32(from + row * from_stride + column, valid));
    }
}

// to (rows / 2, columns): pair (i, c) holds from(2i, c) and from(2i + 1, c). The extent is that of `from` filled up.
inline void pair_rows(std::uint32_t* to, std::int64_t to_stride, Extent to_extent, const bf16* from,
                      std::int64_t from_stride, Extent from_extent) {
  for (std::int64_t row = 0; row < to_extent.rows; row += 2)
    for (std::int64_t column = 0; column < to_extent.columns; column += 16) {
      const auto load_row = [&](std::int64_t r) {
        return load_16(from + r * from_stride + column, r < from_extent.rows ? from_extent.columns - column : 0);
      };
      const __m512i pairs = _mm512_or_si512(load_row(row), _mm512_slli_epi32(load_row(row + 1), 16));
      _mm512_storeu_si512(to + row / 2 * to_stride + column, pairs);
    }
}

// to (columns / 2, rows): pair (i, r) holds from(r, 2i) and from(r, 2i + 1). The extent is that of `from` filled up.
inline void pair_columns(std::uint32_t* to, std::int64_t to_stride, Extent to_extent, const bf16* from,
                         std::int64_t from_stride, Extent from_extent) {
  for (std::int64_t row = 0; row < to_extent.rows; row += 16)
    for (std::int64_t column = 0; column < to_extent.columns; column += 32) {
      __m512i in[16], out[16];
      for (std::int64_t i = 0; i < 16; ++i)
        in[i] = load_32(from + (row + i) * from_stride + column,
                        row + i < from_extent.rows ? from_extent.columns - column : 0);
      transpose_words_16(out, in);
      for (std::int64_t i = 0; i < 16; ++i) _mm512_storeu_si512(to + (column / 2 + i) * to_stride + row, out[i]);
    }
}

// 2^x for x <= 0, relative error 3e-6, more than the bf16 that it becomes can tell: x = floor(x) + r, a minimax
// polynomial of degree 4 for 2^r.
inline __m512 exponential2(__m512 x) {
  const __m512 r = _mm512_reduce_ps(x, 0x09);  // x - floor(x)
  __m512 p = _mm512_set1_ps(0.0135341677f);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.0520114609f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.241442757f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.693003835f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.00000259f));
  return _mm512_scalef_ps(p, x);  // p · 2^floor(x)
}

// The lanes of vector `index` (16 columns each) that lie below `valid` columns.
inline __mmask16 valid_lanes(std::int64_t valid, std::int64_t index) {
  const std::int64_t count = std::clamp<std::int64_t>(valid - 16 * index, 0, 16);
  return static_cast<__mmask16>((1u << count) - 1u);
}

// to (count) = from · factor, rounded to bf16; count is a multiple of 16.
inline void store_row(bf16* to, const float* from, std::int64_t count, float factor) {
  for (std::int64_t i = 0; i < count; i += 16) {
    const __m256bh rounded = _mm512_cvtneps_pbh(_mm512_mul_ps(_mm512_loadu_ps(from + i), _mm512_set1_ps(factor)));
    std::memcpy(static_cast<void*>(to + i), &rounded, sizeof(rounded));
  }
}

}  // namespace filigree::amx
HWY_POP_ATTRIBUTES
