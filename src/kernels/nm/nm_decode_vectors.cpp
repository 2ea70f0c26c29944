// Products for a few tokens: compressed weights are read once, expanded in registers and multiplied by dense inputs.
// Bound by memory: 4.5 bytes of fp32 or 2.5 of bf16 weights and mask for two dense columns at 2:4, against 8 and 4. A
// dropped weight counts as 0 times its input, as in a dense product.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/nm/nm_decode_vectors.cpp"
#include "kernels/nm/nm_highway.h"
// After the line above: foreach_target.h includes this file once more for each target.
#include "hwy/highway.h"
#include "kernels/nm/nm_expand-inl.h"
#include "kernels/nm/nm_vectors.h"

HWY_BEFORE_NAMESPACE();
namespace filigree {
namespace HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR
namespace {

// Bytes of values to be read ahead: the hardware's own reading ahead stops at page ends.
constexpr std::int64_t kAhead = 2048;

template <typename T, int kTokens>
void decode_rows(const NmDecodeArgs& args, std::int64_t row_begin, std::int64_t row_end) {
  const D d;
  const NmRows& weights = args.weights;
  const auto* end = static_cast<const T*>(weights.values) + weights.rows * weights.value_stride;
  for (std::int64_t row = row_begin; row < row_end; ++row) {
    const T* value = static_cast<const T*>(weights.values) + row * weights.value_stride;
    const std::uint8_t* mask = weights.mask + row * weights.mask_stride;
    // Two sums a token, for even and odd vectors: one alone would wait for its own multiply-add.
    V even[kTokens], odd[kTokens];
    for (int t = 0; t < kTokens; ++t) even[t] = odd[t] = hn::Zero(d);
    for (std::int64_t column = 0; column < weights.columns; column += 64) {
      const int count = static_cast<int>(std::min<std::int64_t>(64, weights.columns - column));
      std::uint64_t bits = load_mask_bits(mask, column, count);
      const float* x = args.x + column;
      for (std::size_t line = 0; line < 64 * sizeof(T) / 2; line += 64)
        __builtin_prefetch(reinterpret_cast<const char*>(value) + kAhead + line);
#pragma GCC unroll 2
      for (int c = 0; c < 64; c += 2 * kLanes) {
        constexpr unsigned kLaneBits = (1u << kLanes) - 1;
        const auto low = static_cast<unsigned>(bits) & kLaneBits;
        const auto high = static_cast<unsigned>(bits >> kLanes) & kLaneBits;
        if constexpr (2 * kLanes < 64) bits >>= 2 * kLanes;
        const V first = expand_vector(load_values_before(value, end), low);
        value += std::popcount(low);
        const V second = expand_vector(load_values_before(value, end), high);
        value += std::popcount(high);
        for (int t = 0; t < kTokens; ++t) {
          even[t] = hn::MulAdd(first, hn::Load(d, x + t * args.x_stride + c), even[t]);
          odd[t] = hn::MulAdd(second, hn::Load(d, x + t * args.x_stride + c + kLanes), odd[t]);
        }
      }
    }
    for (int t = 0; t < kTokens; ++t) {
      const float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(even[t], odd[t])));
      nm_store_one(args.out, t, row, sum);
    }
  }
}

template <typename T, int kTokens = static_cast<int>(kNmDecodeTokens)>
void decode_tokens(const NmDecodeArgs& args, std::int64_t row_begin, std::int64_t row_end) {
  if constexpr (kTokens > 1)
    if (args.tokens != kTokens) return decode_tokens<T, kTokens - 1>(args, row_begin, row_end);
  decode_rows<T, kTokens>(args, row_begin, row_end);
}

void decode(const NmDecodeArgs& args, std::int64_t row_begin, std::int64_t row_end) {
  if (args.weights.dtype == DType::f32)
    decode_tokens<float>(args, row_begin, row_end);
  else
    decode_tokens<bf16>(args, row_begin, row_end);
}

}  // namespace

const NmDecodeKernels& decode_kernels() {
  static constexpr NmDecodeKernels kernels = {decode};
  return kernels;
}

#endif
}  // namespace HWY_NAMESPACE
}  // namespace filigree
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace filigree {
const NmDecodeKernels& nm_decode_kernels(NmVectors vectors) {
  return FILIGREE_NM_SELECT(decode_kernels, vectors);
}
}  // namespace filigree
#endif
