// The CPU's block products, one tile at a time. Compiled for every vector target by Highway.
//
// All of them are sums of outer products: a few broadcast words of one operand times up to three vectors of the other,
// into sums that stay in registers. A tile of 8 x 3 takes 24 multiply-adds for 11 loads, so that neither the load ports
// (two a cycle on Golden Cove, one of 64 bytes on Zen 4) nor the latency of a multiply-add (4 cycles, 8 in flight)
// holds it: 95 to 98 per cent of the multiply-add peak, measured on Golden Cove with operands in L1 or L2. What is not
// kept is never touched, so half of the blocks is half of the work, with no shuffle.
#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/block/block_vectors.cpp"
#include "kernels/nm/nm_highway.h"
// After the line above: foreach_target.h includes this file once more for each target.
#include "hwy/highway.h"
#include "kernels/block/block_vectors.h"

HWY_BEFORE_NAMESPACE();
namespace filigree {
namespace HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::CappedTag<float, 16>;
using V = hn::Vec<D>;
constexpr int kLanes = HWY_MAX_BYTES >= 64 ? 16 : HWY_MAX_BYTES / 4;
constexpr int kRows = kLanes == 16 ? 8 : 4;

// sum[r][v] += weights[r] · x[v]: one step of a tile.
template <int kVectors>
HWY_INLINE void add_outer(V (&sum)[kRows][kVectors], const float* weights, V (&x)[kVectors]) {
  const D d;
#pragma GCC unroll 3
  for (int v = 0; v < kVectors; ++v) FILIGREE_NM_KEEP_VECTOR(x[v]);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    V w = hn::Set(d, weights[r]);
    if (kVectors > 1) FILIGREE_NM_KEEP_VECTOR(w);
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(w, x[v], sum[r][v]);
  }
}

template <int kVectors>
void multiply_line_of(const BlockLineTile& tile) {
  constexpr std::int64_t kWidth = kVectors * kLanes;
  const D d;
  V sum[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v)
      sum[r][v] = tile.first ? hn::Zero(d) : hn::Load(d, tile.sums + r * kWidth + v * kLanes);
  const auto* weights = static_cast<const float*>(tile.weights);
  const auto* panel = static_cast<const float*>(tile.panel);
  for (std::int64_t i = 0; i < tile.count; ++i) {
    const float* from = panel + tile.entries[i].other * tile.depth * kWidth;
    for (std::int64_t step = 0; step < tile.depth; ++step, from += kWidth, weights += kRows) {
      V x[kVectors];
#pragma GCC unroll 3
      for (int v = 0; v < kVectors; ++v) x[v] = hn::Load(d, from + v * kLanes);
      add_outer(sum, weights, x);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) hn::Store(sum[r][v], d, tile.sums + r * kWidth + v * kLanes);
}

void multiply_line(const BlockLineTile& tile, int vectors) {
  if (vectors == 1) multiply_line_of<1>(tile);
  if (vectors == 2) multiply_line_of<2>(tile);
  if (vectors == 3) multiply_line_of<3>(tile);
}

HWY_INLINE void store_gradient(V sum, float* to, int lanes, bool add) {
  const D d;
  if (lanes == kLanes) {
    hn::StoreU(add ? hn::Add(sum, hn::LoadU(d, to)) : sum, d, to);
  } else {
    alignas(64) float lane[kLanes];
    hn::Store(sum, d, lane);
    for (int i = 0; i < lanes; ++i) to[i] = add ? to[i] + lane[i] : lane[i];
  }
}

template <int kVectors>
void multiply_gradient_of(const BlockGradientPiece& piece) {
  const D d;
  V sum[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::Zero(d);
  const auto* dy = static_cast<const float*>(piece.dy);
  const float* from[kVectors];
  for (int v = 0; v < kVectors; ++v) from[v] = static_cast<const float*>(piece.x[v]);
  for (std::int64_t step = 0; step < piece.steps; ++step, dy += kRows) {
    V x[kVectors];
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) x[v] = hn::Load(d, from[v] + step * kLanes);
    add_outer(sum, dy, x);
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
    if (r < piece.rows)
#pragma GCC unroll 3
      for (int v = 0; v < kVectors; ++v)
        store_gradient(sum[r][v], piece.gradient[v] + r * piece.stride, piece.lanes[v], piece.add);
}

void multiply_gradient(const BlockGradientPiece& piece) {
  if (piece.vectors == 1) multiply_gradient_of<1>(piece);
  if (piece.vectors == 2) multiply_gradient_of<2>(piece);
  if (piece.vectors == 3) multiply_gradient_of<3>(piece);
}

HWY_INLINE V load_values(const float* from) {
  return hn::LoadU(D(), from);
}
HWY_INLINE V load_values(const bf16* from) {
  const hn::RebindToUnsigned<D> words;
  const hn::Rebind<std::uint16_t, D> halves;
  const auto bits = hn::LoadU(halves, reinterpret_cast<const std::uint16_t*>(from));
  return hn::BitCast(D(), hn::ShiftLeft<16>(hn::PromoteTo(words, bits)));
}
template <typename T>
HWY_INLINE V load_values(const T* from, int count) {
  alignas(64) T lane[kLanes] = {};
  std::copy_n(from, count, lane);
  return load_values(lane);
}

// Rows of a block that are decoded together: a sum for each row and token, half of the registers.
template <int kTokens>
constexpr int kDecodeRows = (kLanes == 16 ? 16 : 8) / (kTokens == 1   ? 1
                                                       : kTokens == 2 ? 2
                                                                      : 4);

// One vector of inputs of each token times the same columns of each row.
template <int kCount, int kTokens, typename T>
HWY_INLINE void add_columns(V (&sum)[kCount][kTokens], const float* x, std::int64_t x_stride, const T* block,
                            const std::int64_t (&offset)[kCount], std::int64_t ahead, int rest) {
  const D d;
  V inputs[kTokens];
#pragma GCC unroll 4
  for (int t = 0; t < kTokens; ++t) inputs[t] = hn::LoadU(d, x + t * x_stride);
#pragma GCC unroll 16
  for (int r = 0; r < kCount; ++r) {
    __builtin_prefetch(block + offset[r] + ahead);
    const V w = rest == 0 ? load_values(block + offset[r]) : load_values(block + offset[r], rest);
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) sum[r][t] = hn::MulAdd(w, inputs[t], sum[r][t]);
  }
}

// Rows from `row` on of a block row, inputs in the lanes. Rows that hang over W are computed (they are zero) and not
// stored; rows beyond the block are its last row again.
template <typename T, int kTokens>
void decode_rows(const BlockDecodeArgs& args, std::int64_t line, int row) {
  constexpr int kCount = kDecodeRows<kTokens>;
  const D d;
  const std::int64_t height = args.grid.block.rows, columns = args.grid.block.columns;
  V sum[kCount][kTokens];
#pragma GCC unroll 16
  for (int r = 0; r < kCount; ++r)
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) sum[r][t] = hn::Zero(d);
  std::int64_t offset[kCount];
  for (int r = 0; r < kCount; ++r) offset[r] = std::min<std::int64_t>(row + r, height - 1) * columns;
  const int rest = static_cast<int>(columns % kLanes);
  const std::int64_t ahead = std::max<std::int64_t>(height * columns, 2048 / sizeof(T));
  for (std::int32_t i = args.row_start[line]; i < args.row_start[line + 1]; ++i) {
    const T* block = static_cast<const T*>(args.values) + i * height * columns;
    const float* x = args.x + args.row_entries[i].other * columns;
    std::int64_t column = 0;
    for (; column + kLanes <= columns; column += kLanes)
      add_columns<kCount, kTokens>(sum, x + column, args.x_stride, block + column, offset, ahead, 0);
    if (rest > 0) add_columns<kCount, kTokens>(sum, x + column, args.x_stride, block + column, offset, ahead, rest);
  }
  const std::int64_t first = line * height + row;
  const std::int64_t count = std::min({std::int64_t{kCount}, height - row, args.grid.rows - first});
#pragma GCC unroll 16
  for (int r = 0; r < kCount; ++r)
    if (r < count)
#pragma GCC unroll 4
      for (int t = 0; t < kTokens; ++t) {
        const float value = hn::GetLane(hn::SumOfLanes(d, sum[r][t])) + (args.bias ? args.bias[first + r] : 0.0f);
        static_cast<T*>(args.y)[t * args.grid.rows + first + r] = T(value);
      }
}

template <typename T, int kTokens = kBlockDecodeTokens>
void decode_lines(const BlockDecodeArgs& args, std::int64_t begin, std::int64_t end) {
  if constexpr (kTokens > 1)
    if (args.tokens != kTokens) return decode_lines<T, kTokens - 1>(args, begin, end);
  for (std::int64_t line = begin; line < end; ++line)
    for (int row = 0; row < args.grid.block.rows; row += kDecodeRows<kTokens>) decode_rows<T, kTokens>(args, line, row);
}

void decode(const BlockDecodeArgs& args, std::int64_t begin, std::int64_t end) {
  if (args.dtype == DType::f32)
    decode_lines<float>(args, begin, end);
  else
    decode_lines<bf16>(args, begin, end);
}

}  // namespace

const BlockKernels& block_kernels_here() {
  static constexpr BlockKernels kernels = {multiply_line, multiply_gradient, decode};
  return kernels;
}

#endif
}  // namespace HWY_NAMESPACE
}  // namespace filigree
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace filigree {
const BlockKernels& block_kernels(NmVectors vectors) {
  return FILIGREE_NM_SELECT(block_kernels_here, vectors);
}
}  // namespace filigree
#endif
