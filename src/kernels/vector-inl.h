// Vectors of fp32 lanes over fp32 or bf16 arrays, for the kernels that Highway compiles once for each instruction set
// (baseline, AVX2, AVX-512) and chooses among at run time. Included inside foreach_target, so its guard toggles.
//
// A loop over `count` elements is written once: for_vectors calls its body with Full for whole vectors and with Part
// for the rest, and load, store and friends take either.
#if defined(FILIGREE_KERNELS_VECTOR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FILIGREE_KERNELS_VECTOR_INL_H_
#undef FILIGREE_KERNELS_VECTOR_INL_H_
#else
#define FILIGREE_KERNELS_VECTOR_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

#include "core/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace filigree::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using FloatVector = hn::Vec<FloatTag>;
inline constexpr std::int64_t kLanes = HWY_LANES(float);

struct Full {};  // kLanes elements
struct Part {    // fewer
  std::int64_t count;
};

HWY_INLINE FloatVector splat(float value) {
  return hn::Set(FloatTag(), value);
}

HWY_INLINE FloatVector load(const float* from, Full = {}) {
  return hn::LoadU(FloatTag(), from);
}
HWY_INLINE FloatVector load(const bf16* from, Full = {}) {
  const hn::RebindToUnsigned<FloatTag> words;
  const hn::Rebind<std::uint16_t, FloatTag> halves;
  const auto bits = hn::LoadU(halves, reinterpret_cast<const std::uint16_t*>(from));
  return hn::BitCast(FloatTag(), hn::ShiftLeft<16>(hn::PromoteTo(words, bits)));
}
// Lanes past the end hold `rest`.
template <typename T>
HWY_INLINE FloatVector load(const T* from, Part part, float rest = 0.0f) {
  HWY_ALIGN T lanes[kLanes];
  std::fill(std::copy(from, from + part.count, lanes), lanes + kLanes, T(rest));
  return load(lanes, Full());
}
template <typename T>
HWY_INLINE FloatVector load(const T* from, Full, float) {
  return load(from, Full());
}

HWY_INLINE void store(FloatVector value, float* to, Full = {}) {
  hn::StoreU(value, FloatTag(), to);
}
// Rounds as class bf16 does: to nearest even, NaN to a quiet NaN.
HWY_INLINE void store(FloatVector value, bf16* to, Full = {}) {
  const hn::RebindToUnsigned<FloatTag> words;
  const hn::Rebind<std::uint16_t, FloatTag> halves;
  const auto bits = hn::BitCast(words, value);
  const auto upper = hn::ShiftRight<16>(bits);
  const auto odd = hn::And(upper, hn::Set(words, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(words, 0x7fffu)), odd));
  const auto is_nan = hn::RebindMask(words, hn::Ne(value, value));
  const auto result = hn::IfThenElse(is_nan, hn::Or(upper, hn::Set(words, 0x40u)), rounded);
  hn::StoreU(hn::TruncateTo(halves, result), halves, reinterpret_cast<std::uint16_t*>(to));
}
template <typename T>
HWY_INLINE void store(FloatVector value, T* to, Part part) {
  HWY_ALIGN T lanes[kLanes];
  store(value, lanes, Full());
  std::copy(lanes, lanes + part.count, to);
}

// value in the lanes that count, 0 in the others.
HWY_INLINE FloatVector keep(FloatVector value, Full) {
  return value;
}
HWY_INLINE FloatVector keep(FloatVector value, Part part) {
  return hn::IfThenElseZero(hn::FirstN(FloatTag(), static_cast<std::size_t>(part.count)), value);
}

// body(index, Full or Part) over [0, count).
template <typename Body>
HWY_INLINE void for_vectors(std::int64_t count, const Body& body) {
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) body(i, Full());
  if (i < count) body(i, Part{count - i});
}

// Sum over [0, count) of term(index, Full or Part), in an order that depends on `count` alone. Four accumulators hide
// the latency of the addition. Lanes past the end must be 0: use keep().
template <typename Term>
HWY_INLINE float sum_vectors(std::int64_t count, const Term& term) {
  FloatVector sum0 = splat(0.0f), sum1 = sum0, sum2 = sum0, sum3 = sum0;
  std::int64_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes) {
    sum0 = hn::Add(sum0, term(i, Full()));
    sum1 = hn::Add(sum1, term(i + kLanes, Full()));
    sum2 = hn::Add(sum2, term(i + 2 * kLanes, Full()));
    sum3 = hn::Add(sum3, term(i + 3 * kLanes, Full()));
  }
  for (; i + kLanes <= count; i += kLanes) sum0 = hn::Add(sum0, term(i, Full()));
  if (i < count) sum1 = hn::Add(sum1, term(i, Part{count - i}));
  return hn::GetLane(hn::SumOfLanes(FloatTag(), hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3))));
}

// max(bound, x) and min(bound, x) that let a NaN in x through: x86 returns the second operand then.
HWY_INLINE FloatVector at_least(float bound, FloatVector x) {
  return hn::Max(splat(bound), x);
}
HWY_INLINE FloatVector at_most(float bound, FloatVector x) {
  return hn::Min(splat(bound), x);
}

// e^x for -87 <= x <= 88.3, a NaN stays NaN: x = n ln 2 + r with |r| <= ln 2 / 2, a minimax polynomial of degree 6 for
// e^r (error 3e-9), n added to the exponent. n comes from adding 1.5 · 2^23, which leaves it in the low bits of the
// sum, ready to be shifted into place. Error below 2 ulp (tested). 13 operations.
HWY_INLINE FloatVector exponential_inside(FloatVector x) {
  const hn::RebindToUnsigned<FloatTag> words;
  const FloatVector shift = splat(0x1.8p23f);
  const FloatVector shifted = hn::MulAdd(x, splat(1.44269504f), shift);
  const FloatVector n = hn::Sub(shifted, shift);
  FloatVector r = hn::NegMulAdd(n, splat(0.693359375f), x);  // exact: 10 bits of ln 2 times 8 bits of n
  r = hn::NegMulAdd(n, splat(-2.12194440e-4f), r);           // the rest of ln 2
  FloatVector p = splat(1.38143205e-3f);
  p = hn::MulAdd(p, r, splat(8.36885107e-3f));
  p = hn::MulAdd(p, r, splat(4.16684011e-2f));
  p = hn::MulAdd(p, r, splat(1.66665195e-1f));
  p = hn::MulAdd(p, r, splat(4.99999934e-1f));
  p = hn::MulAdd(hn::Mul(p, r), r, r);
  p = hn::Add(p, splat(1.0f));
  return hn::BitCast(FloatTag(), hn::Add(hn::BitCast(words, p), hn::ShiftLeft<23>(hn::BitCast(words, shifted))));
}

// e^x for x <= 88.3, 0 below -87.
HWY_INLINE FloatVector exponential(FloatVector x) {
  return hn::IfThenZeroElse(hn::Lt(x, splat(-87.0f)), exponential_inside(at_least(-87.0f, x)));
}

// 2^x for -126 <= x <= 127, a NaN stays NaN: relative error below 2e-7. 9 operations.
HWY_INLINE FloatVector exponential2_inside(FloatVector x) {
  const hn::RebindToUnsigned<FloatTag> words;
  const FloatVector shift = splat(0x1.8p23f);
  const FloatVector shifted = hn::Add(x, shift);
  const FloatVector r = hn::Sub(x, hn::Sub(shifted, shift));  // |r| <= 1/2
  FloatVector p = splat(1.32764718e-3f);
  p = hn::MulAdd(p, r, splat(9.67554133e-3f));
  p = hn::MulAdd(p, r, splat(5.55071327e-2f));
  p = hn::MulAdd(p, r, splat(2.40221197e-1f));
  p = hn::MulAdd(p, r, splat(6.93146967e-1f));
  p = hn::MulAdd(p, r, splat(1.00000007f));
  return hn::BitCast(FloatTag(), hn::Add(hn::BitCast(words, p), hn::ShiftLeft<23>(hn::BitCast(words, shifted))));
}

// 2^x for x <= 0, as softmax needs it; 2^-126 below -126.
HWY_INLINE FloatVector exponential2(FloatVector x) {
  return exponential2_inside(at_least(-126.0f, x));
}

inline constexpr float kLog2E = 1.44269504f;

// 1 / (1 + 2^-x): the logistic function of x ln 2, at least 2^-126. The quotient is an estimate of 12 (AVX2) or 14 bits
// and a Newton step, because a division takes 16 cycles for 16 lanes, as much as all the rest. Error below 5 ulp
// (tested).
HWY_INLINE FloatVector logistic2(FloatVector x) {
  const FloatVector power = exponential2_inside(at_most(126.0f, at_least(-126.0f, hn::Neg(x))));
  const FloatVector divisor = hn::Add(splat(1.0f), power);
  const FloatVector estimate = hn::ApproximateReciprocal(divisor);
  return hn::MulAdd(estimate, hn::NegMulAdd(divisor, estimate, splat(1.0f)), estimate);
}

}  // namespace filigree::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
