// 2:4 weights times bf16 inputs with AVX512_BF16. Called only where the processor has it and it is fast (nm_target.h).
//
// Outputs lie in the lanes. The four inputs of a group are broadcast as 64 bits, a byte shuffle picks the two that each
// lane's output keeps, and vdpbf16ps multiplies them by its two weights and adds them up: one shuffle and one product
// where dense takes two products. They share three vector pipes on Zen 4, so that two take 1.33 cycles instead of 2: a
// bound of 1.5. A tile of weights is spread out once for all tokens of a chunk; x and y stay as they lie.
//
// (All six pairs of a group side by side in memory, one product with a memory operand each and no shuffle, have a bound
// of 1.6, but sums go through L2 eight groups at a time: measured at 0.9 to 1.1 times dense where this is 1.2 to 1.35.)
#include <immintrin.h>

#include <array>

#include "hwy/base.h"
#include "kernels/nm/nm_vectors.h"

// By attribute, not by compiler flag: inline functions of the headers above must stay what any processor can run.
HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,popcnt,bmi,bmi2,fma,avx2")

#include "kernels/nm/nm_transpose-inl.h"

namespace filigree {
namespace {

constexpr int kLanes = 16;
constexpr int kVectors = kNmDotRows / kLanes;
constexpr int kTokens = 6;  // 24 sums, four shuffled inputs, four weights
static_assert(kVectors == 4);

struct alignas(64) Table {
  std::uint32_t of[16];
};
// The shuffle that picks a group's two kept entries, by its four mask bits. In the half byte that a row may end in, and
// in rows beyond the matrix, other bits occur: weights there are zeros.
constexpr Table shuffles() {
  Table table = {};
  for (std::uint32_t bits = 0; bits < 16; ++bits) {
    if (std::popcount(bits) != 2) continue;
    const auto left = static_cast<std::uint32_t>(std::countr_zero(bits));
    const auto right = static_cast<std::uint32_t>(std::bit_width(bits)) - 1;
    table.of[bits] = 2 * left | (2 * left + 1) << 8 | 2 * right << 16 | (2 * right + 1) << 24;
  }
  return table;
}

// 16 rows of the tile: vector `v` of each group.
void spread_rows(const NmDotTile& tile, const NmRows& from, std::int64_t row, int v) {
  static constexpr Table kShuffles = shuffles();
  const __m512i table = _mm512_load_si512(kShuffles.of);
  const auto groups = static_cast<int>(from.columns / 4);
  const std::int64_t rows = std::clamp<std::int64_t>(from.rows - row, 0, kLanes);
  const auto* values = static_cast<const bf16*>(from.values) + row * from.value_stride;
  // The block on the right is next. Its rows lie too far apart for the hardware to foresee, and there is time.
  for (std::int64_t r = 0; r < rows; ++r) {
    const bf16* next = values + r * from.value_stride + 2 * groups;
    for (int value = 0; value < 2 * groups; value += 32) __builtin_prefetch(next + value);
    __builtin_prefetch(from.mask + (row + r) * from.mask_stride + (from.begin + from.columns) / 8);
  }
  for (int group = 0; group < groups; group += kLanes) {
    const int count = std::min(kLanes, groups - group);
    const auto valid = static_cast<__mmask16>((1u << count) - 1);
    __m512i words[16];
    for (std::int64_t r = 0; r < kLanes; ++r)
      words[r] = r < rows ? _mm512_maskz_loadu_epi32(valid, values + r * from.value_stride + 2 * group)
                          : _mm512_setzero_si512();
    transpose(words);
    for (int g = 0; g < count; ++g) _mm512_store_si512(tile.at(group + g, v), words[g]);
  }
  for (int group = 0; group < groups; group += 8) {
    const int count = std::min(8, groups - group);
    alignas(64) std::uint32_t bits[kLanes] = {};
    for (std::int64_t r = 0; r < rows; ++r)
      bits[r] = static_cast<std::uint32_t>(
          load_mask_bits(from.mask + (row + r) * from.mask_stride, from.begin + 4 * group, 4 * count));
    __m512i left = _mm512_load_si512(bits);
    for (int g = 0; g < count; ++g, left = _mm512_srli_epi32(left, 4)) {
      const __m512i which = _mm512_and_si512(left, _mm512_set1_epi32(15));
      _mm512_store_si512(tile.at(group + g, v) + 64, _mm512_permutexvar_epi32(which, table));
    }
  }
}

void spread(const NmDotTile& tile, const NmRows& from) {
  for (int v = 0; v < kVectors; ++v) spread_rows(tile, from, v * kLanes, v);
}

template <int kCount>
inline void multiply_tokens(float* sums, const NmDotTile& tile, int groups, const bf16* x, std::int64_t stride,
                            bool first) {
  __m512 sum[kCount][kVectors];
#pragma GCC unroll 6
  for (int t = 0; t < kCount; ++t)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v)
      sum[t][v] = first ? _mm512_setzero_ps() : _mm512_load_ps(sums + t * kNmDotRows + v * kLanes);
  const std::byte* at = tile.memory;
  for (int group = 0; group < groups; ++group, at += NmDotTile::kGroupBytes, x += 4) {
    __m512i weights[kVectors], shuffle[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      weights[v] = _mm512_load_si512(at + 128 * v);
      shuffle[v] = _mm512_load_si512(at + 128 * v + 64);
    }
#pragma GCC unroll 6
    for (int t = 0; t < kCount; ++t) {
      std::int64_t inputs;
      std::memcpy(&inputs, x + t * stride, sizeof inputs);
      const __m512i four = _mm512_set1_epi64(inputs);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v)
        sum[t][v] = _mm512_dpbf16_ps(sum[t][v], (__m512bh)weights[v], (__m512bh)_mm512_shuffle_epi8(four, shuffle[v]));
    }
  }
#pragma GCC unroll 6
  for (int t = 0; t < kCount; ++t)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) _mm512_store_ps(sums + t * kNmDotRows + v * kLanes, sum[t][v]);
}

void multiply(float* sums, const NmDotTile& tile, const NmDotInputs& in) {
  const int groups = static_cast<int>(in.columns / 4);
  std::int64_t token = 0;
  for (; token + kTokens <= in.tokens; token += kTokens) {
    const bf16* x = in.x + token * in.stride;
    // The rows of the next step: their distance is too large for the hardware to foresee.
    for (int t = kTokens; t < 2 * kTokens; ++t)
      for (std::int64_t column = 0; column < in.columns; column += 32) __builtin_prefetch(x + t * in.stride + column);
    multiply_tokens<kTokens>(sums + token * kNmDotRows, tile, groups, x, in.stride, in.first);
  }
  for (; token < in.tokens; ++token)
    multiply_tokens<1>(sums + token * kNmDotRows, tile, groups, in.x + token * in.stride, in.stride, in.first);
}

// To nearest, ties to even, as bf16(float): vcvtneps2bf16 would flush small numbers to zero.
inline __m256i rounded(__m512 v) {
  const __m512i bits = _mm512_castps_si512(v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  __m512i up = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
  const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
  up = _mm512_mask_or_epi32(up, nan, bits, _mm512_set1_epi32(0x400000));
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(up, 16));
}
inline __m512 widened(__m256i half) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

void store(const NmStore& out, const float* sums, std::int64_t tokens, std::int64_t rows) {
  for (int v = 0; v * kLanes < rows; ++v) {
    const auto valid = static_cast<__mmask16>((1u << std::min<std::int64_t>(kLanes, rows - v * kLanes)) - 1);
    const __m512 bias = out.bias ? _mm512_maskz_loadu_ps(valid, out.bias + v * kLanes) : _mm512_setzero_ps();
    const __m512 scale = _mm512_set1_ps(out.scale);
    for (std::int64_t token = 0; token < tokens; ++token) {
      __m512 sum = _mm512_load_ps(sums + token * kNmDotRows + v * kLanes);
      if (out.scale != 1.0f) sum = _mm512_mul_ps(sum, scale);
      if (out.bias) sum = _mm512_add_ps(sum, bias);
      const std::int64_t at = token * out.row_stride + v * kLanes;
      if (out.dtype == DType::f32) {
        auto* y = static_cast<float*>(out.y) + at;
        if (out.accumulate) sum = _mm512_add_ps(_mm512_maskz_loadu_ps(valid, y), sum);
        _mm512_mask_storeu_ps(y, valid, sum);
      } else {
        auto* y = static_cast<bf16*>(out.y) + at;
        if (out.accumulate) sum = _mm512_add_ps(widened(_mm256_maskz_loadu_epi16(valid, y)), sum);
        _mm256_mask_storeu_epi16(y, valid, rounded(sum));
      }
    }
  }
}

}  // namespace

const NmDotForwardKernels& nm_dot_forward_kernels() {
  static constexpr NmDotForwardKernels kernels = {spread, multiply, store};
  return kernels;
}

}  // namespace filigree

HWY_POP_ATTRIBUTES
