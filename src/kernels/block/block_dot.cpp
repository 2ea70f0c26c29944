// The tiles of block_vectors.cpp on pairs of bf16 with AVX512_BF16: vdpbf16ps multiplies two pairs and adds them to an
// fp32 sum in each lane. Called only where the processor has it and it is fast (nm_target.h).
#include <immintrin.h>

#include "hwy/base.h"
#include "kernels/block/block_vectors.h"

// By attribute, not by compiler flag: inline functions of the headers above must stay what any processor can run.
HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,popcnt,bmi,bmi2,fma,avx2")

namespace filigree {
namespace {

constexpr int kLanes = 16;
constexpr int kRows = block_tile_rows(NmVectors::avx512);

// As add_outer of block_vectors.cpp: what is loaded stays in its register.
template <int kVectors>
inline void add_outer(__m512 (&sum)[kRows][kVectors], const std::uint32_t* words, __m512i (&x)[kVectors]) {
#pragma GCC unroll 3
  for (int v = 0; v < kVectors; ++v) asm("" : "+v"(x[v]));
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    __m512i w = _mm512_set1_epi32(static_cast<int>(words[r]));
    if (kVectors > 1) asm("" : "+v"(w));
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) sum[r][v] = _mm512_dpbf16_ps(sum[r][v], (__m512bh)w, (__m512bh)x[v]);
  }
}

template <int kVectors>
void multiply_line_of(const BlockLineTile& tile) {
  constexpr std::int64_t kWidth = kVectors * kLanes;
  __m512 sum[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v)
      sum[r][v] = tile.first ? _mm512_setzero_ps() : _mm512_load_ps(tile.sums + r * kWidth + v * kLanes);
  const auto* weights = static_cast<const std::uint32_t*>(tile.weights);
  const auto* panel = static_cast<const std::uint32_t*>(tile.panel);
  for (std::int64_t i = 0; i < tile.count; ++i) {
    const std::uint32_t* from = panel + tile.entries[i].other * tile.depth * kWidth;
    for (std::int64_t step = 0; step < tile.depth; ++step, from += kWidth, weights += kRows) {
      __m512i x[kVectors];
#pragma GCC unroll 3
      for (int v = 0; v < kVectors; ++v) x[v] = _mm512_load_si512(from + v * kLanes);
      add_outer(sum, weights, x);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) _mm512_store_ps(tile.sums + r * kWidth + v * kLanes, sum[r][v]);
}

template <int kVectors>
void multiply_gradient_of(const BlockGradientPiece& piece) {
  __m512 sum[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) sum[r][v] = _mm512_setzero_ps();
  const auto* dy = static_cast<const std::uint32_t*>(piece.dy);
  const std::uint32_t* from[kVectors];
  for (int v = 0; v < kVectors; ++v) from[v] = static_cast<const std::uint32_t*>(piece.x[v]);
  for (std::int64_t step = 0; step < piece.steps; ++step, dy += kRows) {
    __m512i x[kVectors];
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) x[v] = _mm512_load_si512(from[v] + step * kLanes);
    add_outer(sum, dy, x);
  }
  __mmask16 valid[kVectors];
  for (int v = 0; v < kVectors; ++v) valid[v] = static_cast<__mmask16>((1u << piece.lanes[v]) - 1);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
    if (r < piece.rows)
#pragma GCC unroll 3
      for (int v = 0; v < kVectors; ++v) {
        float* to = piece.gradient[v] + r * piece.stride;
        if (piece.add) sum[r][v] = _mm512_add_ps(sum[r][v], _mm512_maskz_loadu_ps(valid[v], to));
        _mm512_mask_storeu_ps(to, valid[v], sum[r][v]);
      }
}

}  // namespace

void block_multiply_line_pairs(const BlockLineTile& tile, int vectors) {
  if (vectors == 1) multiply_line_of<1>(tile);
  if (vectors == 2) multiply_line_of<2>(tile);
  if (vectors == 3) multiply_line_of<3>(tile);
}

void block_multiply_gradient_pairs(const BlockGradientPiece& piece) {
  if (piece.vectors == 1) multiply_gradient_of<1>(piece);
  if (piece.vectors == 2) multiply_gradient_of<2>(piece);
  if (piece.vectors == 3) multiply_gradient_of<3>(piece);
}

}  // namespace filigree

HWY_POP_ATTRIBUTES
