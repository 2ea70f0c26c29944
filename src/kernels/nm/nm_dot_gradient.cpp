// The weight gradient in bf16 with AVX512_BF16: vdpbf16ps multiplies two pairs and adds them to an fp32 sum in each
// lane. Called only where the processor has it and it is fast (nm_target.h). Pairs are of tokens, which both operands
// have in the same order; as in fp32 otherwise (nm_gradient_vectors.cpp).
#include <immintrin.h>

#include "hwy/base.h"
#include "kernels/nm/nm_vectors.h"

// By attribute, not by compiler flag: inline functions of the headers above must stay what any processor can run.
HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,popcnt,bmi,bmi2,fma,avx2")

#include "kernels/nm/nm_transpose-inl.h"

namespace filigree {
namespace {

constexpr int kLanes = 16;

// `low` and `high` (16 bf16) as low and high halves of words.
inline __m512i pair_of(__m256i low, __m256i high) {
  return _mm512_or_si512(_mm512_cvtepu16_epi32(low), _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16));
}

inline __m512bh as_pairs(__m512i bits) {
  return (__m512bh)bits;
}
inline __m512bh load_pairs(const std::uint32_t* from) {
  return as_pairs(_mm512_load_si512(from));
}

void load_pairs(std::uint32_t* pairs, std::int64_t width, const bf16* x, std::int64_t stride, std::int64_t tokens,
                std::int64_t columns) {
  constexpr int kColumns = 2 * kLanes;  // a line of each row, which is used up at once
  for (std::int64_t column = 0; column < columns; column += kColumns) {
    const int count = static_cast<int>(std::min<std::int64_t>(kColumns, columns - column));
    const auto valid = static_cast<__mmask32>((std::uint64_t{1} << count) - 1);
    for (std::int64_t token = 0; token < 2 * width; token += 2 * kLanes) {
      const auto load = [&](std::int64_t at) {
        if (at >= tokens) return _mm512_setzero_si512();
        const bf16* from = x + at * stride + column;
        __builtin_prefetch(from + kColumns, 0, 2);  // for the columns on the right, when all tokens have passed
        return _mm512_maskz_loadu_epi16(valid, from);
      };
      __m512i left[kLanes], right[kLanes];
      for (int i = 0; i < kLanes; ++i) {
        const __m512i low = load(token + i), high = load(token + kLanes + i);
        left[i] = pair_of(_mm512_castsi512_si256(low), _mm512_castsi512_si256(high));
        right[i] = pair_of(_mm512_extracti64x4_epi64(low, 1), _mm512_extracti64x4_epi64(high, 1));
      }
      transpose(left);
      transpose(right);
      std::uint32_t* to = pairs + column * width + token / 2;
      for (int c = 0; c < std::min(kLanes, count); ++c) _mm512_store_si512(to + c * width, left[c]);
      for (int c = kLanes; c < count; ++c) _mm512_store_si512(to + c * width, right[c - kLanes]);
    }
  }
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
  static constexpr NmDotGradientKernels kernels = {load_pairs, gradient<>};
  return kernels;
}

}  // namespace filigree

HWY_POP_ATTRIBUTES
