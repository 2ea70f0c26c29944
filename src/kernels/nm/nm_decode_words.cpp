// Decoding in bf16 with AVX512_VBMI2: 16 kept values become 32 columns in one vpexpandw. The 16 values at even places
// and the 16 at odd places are then widened by a shift and by a mask, so that no further shuffle is needed; x is stored
// to match. Called only where the processor has it.
#include <immintrin.h>

#include "hwy/base.h"
#include "kernels/nm/nm_vectors.h"

// By attribute, not by compiler flag: inline functions of the headers above must stay what any processor can run.
HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi2,popcnt,bmi,bmi2,fma,avx2")

namespace filigree {
namespace {

// Up to 32 values, without reading at or beyond `end`.
inline __m512i load_words(const bf16* from, const bf16* end) {
  if (end - from >= 32) return _mm512_loadu_si512(from);
  const auto left = static_cast<unsigned>(std::max<std::int64_t>(end - from, 0));
  return _mm512_maskz_loadu_epi16((1u << left) - 1, from);
}

template <int kTokens>
void decode_rows(const NmDecodeArgs& args, std::int64_t row_begin, std::int64_t row_end) {
  const NmRows& weights = args.weights;
  const auto* end = static_cast<const bf16*>(weights.values) + weights.rows * weights.value_stride;
  const __m512i high_half = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
  for (std::int64_t row = row_begin; row < row_end; ++row) {
    const bf16* value = static_cast<const bf16*>(weights.values) + row * weights.value_stride;
    const std::uint8_t* mask = weights.mask + row * weights.mask_stride;
    __m512 even[kTokens], odd[kTokens];
    for (int t = 0; t < kTokens; ++t) even[t] = odd[t] = _mm512_setzero_ps();
    for (std::int64_t column = 0; column < weights.columns; column += 64) {
      const int count = static_cast<int>(std::min<std::int64_t>(64, weights.columns - column));
      const std::uint64_t bits = load_mask_bits(mask, column, count);
      const float* x = args.x + column;
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        const auto word_bits = static_cast<std::uint32_t>(bits >> (32 * half));
        const __m512i words = _mm512_maskz_expand_epi16(word_bits, load_words(value, end));
        value += std::popcount(word_bits);
        const __m512 at_even = _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
        const __m512 at_odd = _mm512_castsi512_ps(_mm512_and_si512(words, high_half));
        for (int t = 0; t < kTokens; ++t) {
          even[t] = _mm512_fmadd_ps(at_even, _mm512_load_ps(x + t * args.x_stride + 32 * half), even[t]);
          odd[t] = _mm512_fmadd_ps(at_odd, _mm512_load_ps(x + t * args.x_stride + 32 * half + 16), odd[t]);
        }
      }
    }
    for (int t = 0; t < kTokens; ++t)
      nm_store_one(args.out, t, row, _mm512_reduce_add_ps(_mm512_add_ps(even[t], odd[t])));
  }
}

template <int kTokens = static_cast<int>(kNmDecodeTokens)>
void decode_tokens(const NmDecodeArgs& args, std::int64_t row_begin, std::int64_t row_end) {
  if constexpr (kTokens > 1)
    if (args.tokens != kTokens) return decode_tokens<kTokens - 1>(args, row_begin, row_end);
  decode_rows<kTokens>(args, row_begin, row_end);
}

}  // namespace

void nm_decode_words(const NmDecodeArgs& args, std::int64_t row_begin, std::int64_t row_end) {
  decode_tokens(args, row_begin, row_end);
}

}  // namespace filigree

HWY_POP_ATTRIBUTES
