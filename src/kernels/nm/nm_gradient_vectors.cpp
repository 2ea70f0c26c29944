// The weight gradient at kept places with tokens in the lanes.
//
// A row's tokens of dy stay in registers; a kept entry is the dot product with its column's tokens, one multiply-add
// with a memory operand for each vector, and eight entries run together to hide latency. The sums of 4 (8, 16) entries
// are then transposed and added into one vector: 45 instructions for 16 entries of 256 multiply-adds on AVX-512. So the
// bound is 0.85 of the load-fed multiply-add rate, for half of dense's multiply-adds.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/nm/nm_gradient_vectors.cpp"
#include "kernels/nm/nm_highway.h"
// After the line above: foreach_target.h includes this file once more for each target.
#include "hwy/highway.h"
#include "kernels/nm/nm_vectors.h"

HWY_BEFORE_NAMESPACE();
namespace filigree {
namespace HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::CappedTag<float, 16>;
using V = hn::Vec<D>;
constexpr int kLanes = HWY_MAX_BYTES >= 64 ? 16 : HWY_MAX_BYTES / 4;
constexpr int kMaxVectors = kLanes == 16 ? 16 : 8;
constexpr int kParts = kLanes / 4;

// Entries that run together. Four chains of multiply-adds, 16 long, would take 64 cycles where their 64 multiply-adds
// need 48; eight fill them. With 16 registers only four fit.
constexpr int kTogether = kLanes == 16 ? 8 : 4;

// Transposes and adds: block b of the result holds, for each of the four sums, the sum of lanes 4 b to 4 b + 3.
HWY_INLINE V add_lanes(V s0, V s1, V s2, V s3) {
  const D d;
  const hn::Repartition<double, D> pairs;
  const auto s01 = hn::BitCast(pairs, hn::Add(hn::InterleaveLower(d, s0, s1), hn::InterleaveUpper(d, s0, s1)));
  const auto s23 = hn::BitCast(pairs, hn::Add(hn::InterleaveLower(d, s2, s3), hn::InterleaveUpper(d, s2, s3)));
  return hn::Add(hn::BitCast(d, hn::InterleaveLower(pairs, s01, s23)),
                 hn::BitCast(d, hn::InterleaveUpper(pairs, s01, s23)));
}

// Parts of the kTogether entries of the lowest bits, four a part; clears those bits. Where bits run out, column 0 takes
// their place.
template <int kVectors>
HWY_INLINE void multiply_entries(V* part, const V (&dy)[kVectors], const float* x, std::uint64_t& bits) {
  const D d;
  const float* from[kTogether];
  V sum[kTogether];
  for (int i = 0; i < kTogether; ++i) {
    const std::int64_t column = bits == 0 ? 0 : std::countr_zero(bits);
    bits &= bits - 1;
    from[i] = x + column * (kVectors * kLanes);
    FILIGREE_NM_KEEP_ADDRESS(from[i]);
    sum[i] = hn::Mul(dy[0], hn::Load(d, from[i]));
  }
#pragma GCC unroll 16
  for (int v = 1; v < kVectors; ++v)
    for (int i = 0; i < kTogether; ++i) sum[i] = hn::MulAdd(dy[v], hn::Load(d, from[i] + v * kLanes), sum[i]);
  for (int i = 0; i < kTogether; i += 4) part[i / 4] = add_lanes(sum[i], sum[i + 1], sum[i + 2], sum[i + 3]);
}

// Adds the blocks of each part: lane 4 p + i of the result is entry i of part p.
HWY_INLINE V add_blocks(const V (&part)[kParts]) {
#if HWY_MAX_BYTES >= 64
  const D d;
  // Halves [0 2] and [1 3] first; then even blocks of one meet odd blocks of the other.
  const V even = hn::Add(hn::ConcatLowerLower(d, part[2], part[0]), hn::ConcatUpperUpper(d, part[2], part[0]));
  const V odd = hn::Add(hn::ConcatLowerLower(d, part[3], part[1]), hn::ConcatUpperUpper(d, part[3], part[1]));
  return hn::Add(hn::OddEvenBlocks(odd, even), hn::SwapAdjacentBlocks(hn::OddEvenBlocks(even, odd)));
#elif HWY_MAX_BYTES >= 32
  const D d;
  return hn::Add(hn::ConcatLowerLower(d, part[1], part[0]), hn::ConcatUpperUpper(d, part[1], part[0]));
#else
  return part[0];
#endif
}

template <int kVectors>
void multiply_rows(const NmGradientBlock& block) {
  constexpr std::int64_t kWidth = kVectors * kLanes;
  const D d;
  const auto* x = static_cast<const float*>(block.x);
  // The next block's x comes to L2 while this one is used, some lines with each row.
  const auto* next = static_cast<const float*>(block.next);
  const std::int64_t ahead = (block.columns * kWidth + block.rows - 1) / block.rows;
  for (std::int64_t row = 0; row < block.rows; ++row) {
    const float* from = static_cast<const float*>(block.dy) + row * kWidth;
    // Rows of the gradient and of the mask lie a whole row of the matrix apart, too far for the hardware to foresee.
    for (std::int64_t i = 0; i < ahead; i += 16) __builtin_prefetch(next + row * ahead + i, 0, 2);
    __builtin_prefetch(block.gradient + (row + 3) * block.gradient_stride, 1);
    __builtin_prefetch(block.mask + (row + 6) * block.mask_stride + block.begin / 8);
    V dy[kVectors];
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      dy[v] = hn::Load(d, from + v * kLanes);
    }
    std::uint64_t bits = load_mask_bits(block.mask + row * block.mask_stride, block.begin, block.columns);
    const int count = std::popcount(bits);
    float* out = block.gradient + row * block.gradient_stride;
    for (int entry = 0; entry < count; entry += kLanes) {
      V part[kParts];
#pragma GCC unroll 4
      for (int i = 0; i < kLanes; i += kTogether) {
        if (entry + i < count)
          multiply_entries<kVectors>(part + i / 4, dy, x, bits);
        else
          for (int p = 0; p < kTogether / 4; ++p) part[i / 4 + p] = hn::Zero(d);
      }
      V sum = add_blocks(part);
      if (entry + kLanes <= count) {
        if (block.add) sum = hn::Add(sum, hn::LoadU(d, out + entry));
        hn::StoreU(sum, d, out + entry);
      } else {
        alignas(64) float lane[kLanes];
        hn::Store(sum, d, lane);
        for (int i = 0; entry + i < count; ++i) out[entry + i] = block.add ? out[entry + i] + lane[i] : lane[i];
      }
    }
  }
}

template <int kVectors = kMaxVectors>
void multiply(const NmGradientBlock& block, int vectors) {
  if constexpr (kVectors > 1)
    if (vectors != kVectors) return multiply<kVectors / 2>(block, vectors);
  multiply_rows<kVectors>(block);
}

}  // namespace

const NmGradientKernels& gradient_kernels() {
  static constexpr NmGradientKernels kernels = {multiply<>};
  return kernels;
}

#endif
}  // namespace HWY_NAMESPACE
}  // namespace filigree
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace filigree {
const NmGradientKernels& nm_gradient_kernels(NmVectors vectors) {
  return FILIGREE_NM_SELECT(gradient_kernels, vectors);
}
}  // namespace filigree
#endif
