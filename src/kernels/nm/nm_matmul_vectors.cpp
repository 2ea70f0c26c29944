// The product of compressed weights with tokens in the lanes.
//
// x is transposed, so that a kept weight at column k adds broadcast(w) · panel[k] to a row of sums: no shuffle, and
// only kept weights cost anything. What bounds it is loading the panel: one load for each multiply-add holds a Golden
// Cove core at 4.6 multiply-adds a ns instead of the 7 of registers alone, and Zen 4 at one a cycle, its peak, with the
// broadcasts on top. So three rows are multiplied at once: a column that several of them keep (at 2:4, 24 of the 56
// columns that any of the three keeps in a block of 64) is loaded once for all. Sorting columns by subset makes that
// seven loops without branches on data; it is done in L2 for a block of weights, which then serves several panels.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/nm/nm_matmul_vectors.cpp"
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
constexpr int kMaxVectors = kLanes == 16 ? 8 : 4;
constexpr int kStrip = 64;

// Blocks of four lanes from four (two, one) places, `step` floats apart.
HWY_INLINE V load_blocks(const float* from, int step) {
#if HWY_MAX_BYTES >= 64
  const hn::Half<D> half;
  const hn::Half<decltype(half)> quarter;
  const auto lower = hn::Combine(half, hn::Load(quarter, from + step), hn::Load(quarter, from));
  const auto upper = hn::Combine(half, hn::Load(quarter, from + 3 * step), hn::Load(quarter, from + 2 * step));
  return hn::Combine(D(), upper, lower);
#elif HWY_MAX_BYTES >= 32
  const hn::Half<D> half;
  return hn::Combine(D(), hn::Load(half, from + step), hn::Load(half, from));
#else
  (void)step;
  return hn::Load(D(), from);
#endif
}

HWY_INLINE void store_blocks(V v, float* to, int step) {
#if HWY_MAX_BYTES >= 64
  const hn::Half<D> half;
  const hn::Half<decltype(half)> quarter;
  const auto lower = hn::LowerHalf(half, v);
  const auto upper = hn::UpperHalf(half, v);
  hn::Store(hn::LowerHalf(quarter, lower), quarter, to);
  hn::Store(hn::UpperHalf(quarter, lower), quarter, to + step);
  hn::Store(hn::LowerHalf(quarter, upper), quarter, to + 2 * step);
  hn::Store(hn::UpperHalf(quarter, upper), quarter, to + 3 * step);
#elif HWY_MAX_BYTES >= 32
  const hn::Half<D> half;
  hn::Store(hn::LowerHalf(half, v), half, to);
  hn::Store(hn::UpperHalf(half, v), half, to + step);
#else
  (void)step;
  hn::Store(v, D(), to);
#endif
}

// Transposes the 4 x 4 numbers of each block of four lanes.
HWY_INLINE void transpose_blocks(V (&v)[4]) {
  const hn::Repartition<double, D> pairs;
  const D d;
  const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(d, v[0], v[1]));
  const auto low23 = hn::BitCast(pairs, hn::InterleaveLower(d, v[2], v[3]));
  const auto high01 = hn::BitCast(pairs, hn::InterleaveUpper(d, v[0], v[1]));
  const auto high23 = hn::BitCast(pairs, hn::InterleaveUpper(d, v[2], v[3]));
  v[0] = hn::BitCast(d, hn::InterleaveLower(pairs, low01, low23));
  v[1] = hn::BitCast(d, hn::InterleaveUpper(pairs, low01, low23));
  v[2] = hn::BitCast(d, hn::InterleaveLower(pairs, high01, high23));
  v[3] = hn::BitCast(d, hn::InterleaveUpper(pairs, high01, high23));
}

#if HWY_MAX_BYTES >= 64
// to (16 tokens, `step` floats apart) = transpose of 16 rows of sums, `width` apart, in 64 shuffles and 16 stores.
HWY_INLINE void transpose_16(const float* sums, std::int64_t width, float* to, int step) {
  const D d;
  V v[4][4];  // [g][j], after the first transposes: block b holds rows 4 g to 4 g + 3 of token 4 b + j
#pragma GCC unroll 4
  for (int g = 0; g < 4; ++g) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) v[g][i] = hn::Load(d, sums + (4 * g + i) * width);
    transpose_blocks(v[g]);
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const V even01 = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(v[1][j]), v[0][j]);  // tokens j, j + 8 of rows 0 to 7
    const V even23 = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(v[3][j]), v[2][j]);
    const V odd01 = hn::OddEvenBlocks(v[1][j], hn::SwapAdjacentBlocks(v[0][j]));  // tokens j + 4, j + 12
    const V odd23 = hn::OddEvenBlocks(v[3][j], hn::SwapAdjacentBlocks(v[2][j]));
    hn::Store(hn::ConcatLowerLower(d, even23, even01), d, to + j * step);
    hn::Store(hn::ConcatLowerLower(d, odd23, odd01), d, to + (j + 4) * step);
    hn::Store(hn::ConcatUpperUpper(d, even23, even01), d, to + (j + 8) * step);
    hn::Store(hn::ConcatUpperUpper(d, odd23, odd01), d, to + (j + 12) * step);
  }
}
#endif

template <typename X>
void load_panel_of(float* panel, std::int64_t width, const X* x, std::int64_t row_stride, std::int64_t tokens,
                   std::int64_t columns) {
  const D d;
  // Rows are first copied to a strip: x's rows may lie a power of two apart, where 16 of them fight for one cache set.
  // Columns outside, so that what is written lies in a few pages.
  alignas(64) float strip[kLanes * kStrip] = {};
  for (std::int64_t column = 0; column < columns; column += kStrip) {
    const int count = static_cast<int>(std::min<std::int64_t>(kStrip, columns - column));
    for (std::int64_t token = 0; token < width; token += kLanes) {
      const int valid = static_cast<int>(std::clamp<std::int64_t>(tokens - token, 0, kLanes));
      for (int t = 0; t < valid; ++t) {
        const X* from = x + (token + t) * row_stride + column;
        float* to = strip + t * kStrip;
        if (count == kStrip)
          for (int c = 0; c < kStrip; ++c) to[c] = static_cast<float>(from[c]);
        else
          for (int c = 0; c < count; ++c) to[c] = static_cast<float>(from[c]);
      }
      if (valid < kLanes) std::fill(strip + valid * kStrip, strip + kLanes * kStrip, 0.0f);
      float* out = panel + column * width + token;
      for (int c = 0; c < count; c += 4) {
        // Lane block b holds token 4 b + i, so that lanes are tokens in order after the transpose.
        V v[4];
        for (int i = 0; i < 4; ++i) v[i] = load_blocks(strip + i * kStrip + c, 4 * kStrip);
        transpose_blocks(v);
        if (count - c >= 4) {
          for (int i = 0; i < 4; ++i) hn::Store(v[i], d, out + (c + i) * width);
        } else {
          hn::Store(v[0], d, out + c * width);
          if (count - c > 1) hn::Store(v[1], d, out + (c + 1) * width);
          if (count - c > 2) hn::Store(v[2], d, out + (c + 2) * width);
        }
      }
    }
  }
}

void load_panel(float* panel, std::int64_t width, const void* x, DType dtype, std::int64_t row_stride,
                std::int64_t tokens, std::int64_t columns) {
  if (dtype == DType::f32)
    load_panel_of(panel, width, static_cast<const float*>(x), row_stride, tokens, columns);
  else
    load_panel_of(panel, width, static_cast<const bf16*>(x), row_stride, tokens, columns);
}

// y = scale · sum + bias [+ y], rounded. Inlined with a constant count for whole strips.
template <typename Y>
HWY_INLINE void finish_strip(Y* y, float* sum, const NmStore& out, std::int64_t row, int count) {
  if (out.scale != 1.0f)
    for (int r = 0; r < count; ++r) sum[r] *= out.scale;
  if (out.bias)
    for (int r = 0; r < count; ++r) sum[r] += out.bias[row + r];
  if (out.accumulate)
    for (int r = 0; r < count; ++r) sum[r] += static_cast<float>(y[r]);
  for (int r = 0; r < count; ++r) y[r] = Y(sum[r]);
}

template <typename Y>
void store_rows_of(const NmStore& out, const float* sums, std::int64_t width, std::int64_t tokens, std::int64_t rows) {
  const D d;
  alignas(64) float strip[kLanes * kStrip];
  // Tokens outside: y is written along 16 rows at a time, which stay within as many pages.
  for (std::int64_t token = 0; token < tokens; token += kLanes) {
    const int valid = static_cast<int>(std::min<std::int64_t>(kLanes, tokens - token));
    for (std::int64_t row = 0; row < rows; row += kStrip) {
      const int count = static_cast<int>(std::min<std::int64_t>(kStrip, rows - row));
      int r = 0;
#if HWY_MAX_BYTES >= 64
      for (; r + 16 <= count; r += 16) transpose_16(sums + (row + r) * width + token, width, strip + r, kStrip);
#endif
      for (; r < count; r += 4) {
        V v[4];
        for (int i = 0; i < 4; ++i) v[i] = hn::Load(d, sums + (row + std::min(r + i, count - 1)) * width + token);
        transpose_blocks(v);
        for (int i = 0; i < 4; ++i) store_blocks(v[i], strip + i * kStrip + r, 4 * kStrip);
      }
      for (int t = 0; t < valid; ++t) {
        Y* y = static_cast<Y*>(out.y) + (token + t) * out.row_stride + row;
        if (count == kStrip)
          finish_strip(y, strip + t * kStrip, out, row, kStrip);
        else
          finish_strip(y, strip + t * kStrip, out, row, count);
      }
    }
  }
}

void store_rows(const NmStore& out, const float* sums, std::int64_t width, std::int64_t tokens, std::int64_t rows) {
  if (out.dtype == DType::f32)
    store_rows_of<float>(out, sums, width, tokens, rows);
  else
    store_rows_of<bf16>(out, sums, width, tokens, rows);
}

// Where the set bits of `subset` stand among the set bits of `kept`, which contains it.
HWY_INLINE std::uint64_t positions_in(std::uint64_t subset, std::uint64_t kept) {
#if HWY_TARGET <= HWY_AVX2 && HWY_ARCH_X86_64
  return _pext_u64(subset, kept);
#else
  std::uint64_t positions = 0;
  for (int place = 0; kept != 0; kept &= kept - 1, ++place)
    if (subset & kept & (~kept + 1)) positions |= std::uint64_t{1} << place;
  return positions;
#endif
}

template <typename T>
void pack_rows_of(const NmPackedRows& out, const NmRows& in) {
  const D d;
  constexpr int kMaxWords = 2;
  const int words = static_cast<int>((in.columns + 63) / 64);
  alignas(64) float values[kNmRowGroup][64 * kMaxWords + kLanes] = {};
  alignas(64) float sorted[kNmRowGroup][64 * kMaxWords + kLanes];  // room for the last whole vector
  for (std::int64_t group = 0; group < out.groups; ++group) {
    std::uint64_t kept[kNmRowGroup][kMaxWords] = {};
    int first[kNmRowGroup][kMaxWords] = {};  // place of the word's first value
    float* weight[kNmRowGroup];
    for (int r = 0; r < kNmRowGroup; ++r) {
      const std::int64_t row = group * kNmRowGroup + r;
      weight[r] = sorted[r];
      if (row >= in.rows) continue;  // a group that reaches beyond the matrix: the row keeps nothing
      int count = 0;
      for (int w = 0; w < words; ++w) {
        kept[r][w] = load_mask_bits(in.mask + row * in.mask_stride, in.begin + 64 * w,
                                    static_cast<int>(std::min<std::int64_t>(64, in.columns - 64 * w)));
        first[r][w] = count;
        count += std::popcount(kept[r][w]);
      }
      const T* from = static_cast<const T*>(in.values) + row * in.value_stride;
      // A block's rows are a whole row of the matrix apart, too far for the hardware to foresee.
      for (std::int64_t line = 0; line < count; line += 64 / static_cast<std::int64_t>(sizeof(T)))
        __builtin_prefetch(from + 4 * kNmRowGroup * in.value_stride + line);
      __builtin_prefetch(in.mask + (row + 8 * kNmRowGroup) * in.mask_stride + in.begin / 8);
      for (int i = 0; i < count; ++i) values[r][i] = static_cast<float>(from[i]);
    }
    std::uint8_t* column = out.columns + group * out.column_stride;
    for (int s = 0; s < 7; ++s) {
      int count = 0;
      for (int w = 0; w < words; ++w) {
        std::uint64_t subset = ~std::uint64_t{0};
        for (int r = 0; r < kNmRowGroup; ++r) subset &= kNmSubsets[s] >> r & 1 ? kept[r][w] : ~kept[r][w];
        count += std::popcount(subset);
        for (std::uint64_t bits = subset; bits != 0; bits &= bits - 1)
          *column++ = static_cast<std::uint8_t>(64 * w + std::countr_zero(bits));
        for (int r = 0; r < kNmRowGroup; ++r) {
          if (!(kNmSubsets[s] >> r & 1)) continue;
          std::uint64_t positions = positions_in(subset, kept[r][w]);
          for (const float* from = values[r] + first[r][w]; positions != 0; from += kLanes, positions >>= kLanes) {
            const std::uint8_t bytes[8] = {static_cast<std::uint8_t>(positions),
                                           static_cast<std::uint8_t>(positions >> 8)};
            hn::StoreU(hn::Compress(hn::LoadU(d, from), hn::LoadMaskBits(d, bytes)), d, weight[r]);
            weight[r] += std::popcount(positions & ((1u << kLanes) - 1));
          }
        }
      }
      out.counts[group * 8 + s] = static_cast<std::uint8_t>(count);
    }
    for (int r = 0; r < kNmRowGroup; ++r)
      std::copy(sorted[r], weight[r], out.weights + (group * kNmRowGroup + r) * out.weight_stride);
  }
}

void pack_rows(const NmPackedRows& out, const NmRows& in) {
  if (in.dtype == DType::f32)
    pack_rows_of<float>(out, in);
  else
    pack_rows_of<bf16>(out, in);
}

// `count` columns, each kept by the rows of kSubset.
template <int kSubset, int kVectors>
HWY_INLINE void add_subset(V (&sum)[kNmRowGroup][kVectors], const float* panel, const std::uint8_t*& column,
                           const float* (&weight)[kNmRowGroup], int count) {
  const D d;
  for (int i = 0; i < count; ++i) {
    const float* x = panel + std::int64_t{*column++} * (kVectors * kLanes);
    FILIGREE_NM_KEEP_ADDRESS(x);
    V w[kNmRowGroup];
    for (int r = 0; r < kNmRowGroup; ++r)
      if (kSubset >> r & 1) w[r] = hn::Set(d, *weight[r]++);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      V inputs = hn::Load(d, x + v * kLanes);
      if (std::popcount(static_cast<unsigned>(kSubset)) > 1) FILIGREE_NM_KEEP_VECTOR(inputs);
      for (int r = 0; r < kNmRowGroup; ++r)
        if (kSubset >> r & 1) sum[r][v] = hn::MulAdd(w[r], inputs, sum[r][v]);
    }
  }
}

template <int kVectors>
void multiply_panel(float* sums, const NmPackedRows& in, const float* panel, bool first, const float* next) {
  constexpr std::int64_t kWidth = kVectors * kLanes;
  const D d;
  // The next panel comes to L2 while this one is used, some lines with each group.
  const std::int64_t ahead = next ? (in.column_stride * kWidth + in.groups - 1) / in.groups : 0;
  for (std::int64_t group = 0; group < in.groups; ++group) {
    for (std::int64_t i = 0; i < ahead; i += 16) __builtin_prefetch(next + group * ahead + i, 0, 2);
    const std::uint8_t* counts = in.counts + group * 8;
    const std::uint8_t* column = in.columns + group * in.column_stride;
    const float* weight[kNmRowGroup];
    V sum[kNmRowGroup][kVectors];
#pragma GCC unroll 3
    for (int r = 0; r < kNmRowGroup; ++r) {
      weight[r] = in.weights + (group * kNmRowGroup + r) * in.weight_stride;
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v)
        sum[r][v] = first ? hn::Zero(d) : hn::Load(d, sums + (group * kNmRowGroup + r) * kWidth + v * kLanes);
    }
    add_subset<7>(sum, panel, column, weight, counts[0]);
    add_subset<3>(sum, panel, column, weight, counts[1]);
    add_subset<5>(sum, panel, column, weight, counts[2]);
    add_subset<6>(sum, panel, column, weight, counts[3]);
    add_subset<1>(sum, panel, column, weight, counts[4]);
    add_subset<2>(sum, panel, column, weight, counts[5]);
    add_subset<4>(sum, panel, column, weight, counts[6]);
#pragma GCC unroll 3
    for (int r = 0; r < kNmRowGroup; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v)
        hn::Store(sum[r][v], d, sums + (group * kNmRowGroup + r) * kWidth + v * kLanes);
  }
}

template <int kVectors = kMaxVectors>
void multiply(float* sums, const NmPackedRows& weights, const float* panel, int vectors, bool first,
              const float* next) {
  if constexpr (kVectors > 1)
    if (vectors != kVectors) return multiply<kVectors - 1>(sums, weights, panel, vectors, first, next);
  multiply_panel<kVectors>(sums, weights, panel, first, next);
}

}  // namespace

const NmMatmulKernels& matmul_kernels() {
  static constexpr NmMatmulKernels kernels = {load_panel, pack_rows, multiply<>, store_rows};
  return kernels;
}

#endif
}  // namespace HWY_NAMESPACE
}  // namespace filigree
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace filigree {
const NmMatmulKernels& nm_matmul_kernels(NmVectors vectors) {
  return FILIGREE_NM_SELECT(matmul_kernels, vectors);
}
}  // namespace filigree
#endif
