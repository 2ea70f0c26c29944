// The weight gradient in bf16 with AVX512_BF16: vdpbf16ps multiplies two pairs and adds them to an fp32 sum in each
// lane. Called only where the processor has it and it is fast (nm_target.h). Pairs are of tokens, which both operands
// have in the same order; as in fp32 otherwise (nm_gradient_vectors.cpp).
#include <immintrin.h>

#include "hwy/base.h"
#include "kernels/nm/nm_vectors.h"

// By attribute, not by compiler flag: inline functions of the headers above must stay what any processor can run.
HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,popcnt,bmi,bmi2,fma,avx2")

namespace filigree {
namespace {

constexpr int kLanes = 16;

// The bf16 of `low` and `high`, exact for widened bf16, as low and high half.
inline __m512i pair_of(__m512 low, __m512 high) {
  const __m512i high_half = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
  return _mm512_or_si512(_mm512_srli_epi32(_mm512_castps_si512(low), 16),
                         _mm512_and_si512(_mm512_castps_si512(high), high_half));
}

inline __m512bh as_pairs(__m512i bits) {
  return (__m512bh)bits;
}
inline __m512bh load_pairs(const std::uint32_t* from) {
  return as_pairs(_mm512_load_si512(from));
}

void pair_tokens(std::uint32_t* pairs, const float* panel, int vectors, std::int64_t columns) {
  for (std::int64_t i = 0; i < columns * vectors; ++i, panel += 2 * kLanes, pairs += kLanes)
    _mm512_store_si512(pairs, pair_of(_mm512_load_ps(panel), _mm512_load_ps(panel + kLanes)));
}

// Block b of the result holds, for each of the four sums, the sum of lanes 4 b to 4 b + 3.
inline __m512 add_lanes(__m512 s0, __m512 s1, __m512 s2, __m512 s3) {
  const __m512d s01 = _mm512_castps_pd(_mm512_add_ps(_mm512_unpacklo_ps(s0, s1), _mm512_unpackhi_ps(s0, s1)));
  const __m512d s23 = _mm512_castps_pd(_mm512_add_ps(_mm512_unpacklo_ps(s2, s3), _mm512_unpackhi_ps(s2, s3)));
  return _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(s01, s23)), _mm512_castpd_ps(_mm512_unpackhi_pd(s01, s23)));
}

// As multiply_entries in nm_gradient_vectors.cpp: the eight lowest bits; column 0 where they run out.
template <int kVectors>
inline void multiply_entries(__m512* part, const __m512bh (&dy)[kVectors], const std::uint32_t* x,
                             std::uint64_t& bits) {
  const std::uint32_t* from[8];
  __m512 sum[8];
  for (int i = 0; i < 8; ++i) {
    const std::int64_t column = bits == 0 ? 0 : std::countr_zero(bits);
    bits &= bits - 1;
    from[i] = x + column * (kVectors * kLanes);
    sum[i] = _mm512_setzero_ps();
  }
#pragma GCC unroll 16
  for (int v = 0; v < kVectors; ++v)
    for (int i = 0; i < 8; ++i) sum[i] = _mm512_dpbf16_ps(sum[i], dy[v], load_pairs(from[i] + v * kLanes));
  part[0] = add_lanes(sum[0], sum[1], sum[2], sum[3]);
  part[1] = add_lanes(sum[4], sum[5], sum[6], sum[7]);
}

template <int kVectors>
void gradient_rows(const NmGradientBlock& block) {
  constexpr std::int64_t kWidth = kVectors * kLanes;
  const auto* x = static_cast<const std::uint32_t*>(block.x);
  const auto* next = static_cast<const std::uint32_t*>(block.next);
  const std::int64_t ahead = (block.columns * kWidth + block.rows - 1) / block.rows;
  for (std::int64_t row = 0; row < block.rows; ++row) {
    for (std::int64_t i = 0; i < ahead; i += 16) __builtin_prefetch(next + row * ahead + i, 0, 2);
    const std::uint32_t* from = static_cast<const std::uint32_t*>(block.dy) + row * kWidth;
    __m512bh dy[kVectors];
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) dy[v] = load_pairs(from + v * kLanes);
    std::uint64_t bits = load_mask_bits(block.mask + row * block.mask_stride, block.begin, block.columns);
    const int count = std::popcount(bits);
    float* out = block.gradient + row * block.gradient_stride;
    for (int entry = 0; entry < count; entry += kLanes) {
      __m512 part[4] = {};
      multiply_entries<kVectors>(part, dy, x, bits);
      if (bits != 0) multiply_entries<kVectors>(part + 2, dy, x, bits);
      const __m512 half01 =
          _mm512_add_ps(_mm512_shuffle_f32x4(part[0], part[1], 0x88), _mm512_shuffle_f32x4(part[0], part[1], 0xdd));
      const __m512 half23 =
          _mm512_add_ps(_mm512_shuffle_f32x4(part[2], part[3], 0x88), _mm512_shuffle_f32x4(part[2], part[3], 0xdd));
      __m512 sum =
          _mm512_add_ps(_mm512_shuffle_f32x4(half01, half23, 0x88), _mm512_shuffle_f32x4(half01, half23, 0xdd));
      const auto valid = static_cast<__mmask16>((1u << std::min(kLanes, count - entry)) - 1);
      if (block.add) sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(valid, out + entry));
      _mm512_mask_storeu_ps(out + entry, valid, sum);
    }
  }
}

template <int kVectors = 16>
void gradient(const NmGradientBlock& block, int vectors) {
  if constexpr (kVectors > 1)
    if (vectors != kVectors) return gradient<kVectors / 2>(block, vectors);
  gradient_rows<kVectors>(block);
}

}  // namespace

const NmDotGradientKernels& nm_dot_gradient_kernels() {
  static constexpr NmDotGradientKernels kernels = {pair_tokens, gradient<>};
  return kernels;
}

}  // namespace filigree

HWY_POP_ATTRIBUTES
