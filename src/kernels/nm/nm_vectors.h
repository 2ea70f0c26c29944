// Tables of vector kernels, one a target. The drivers (nm_matmul_cpu.cpp, nm_gradient_cpu.cpp, nm_pack_cpu.cpp) own
// blocking, threads and memory; the kernels here see one block.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/nm/nm_plan.h"

namespace filigree {

// Mask bits [begin, begin + count) of one row, count <= 64. Reads no byte beyond those bits.
inline std::uint64_t load_mask_bits(const std::uint8_t* row, std::int64_t begin, int count) {
  const std::uint8_t* first = row + begin / 8;
  const int shift = static_cast<int>(begin % 8);
  std::uint64_t bits = 0;
  if (shift + count > 56) {
    std::memcpy(&bits, first, 8);
  } else if (shift == 0 && count == 32) {
    std::uint32_t word;
    std::memcpy(&word, first, 4);
    return word;
  } else {
    for (int i = 0; 8 * i < shift + count; ++i) bits |= std::uint64_t{first[i]} << (8 * i);
  }
  bits >>= shift;
  if (shift + count > 64) bits |= std::uint64_t{first[8]} << (64 - shift);
  return count == 64 ? bits : bits & ((std::uint64_t{1} << count) - 1);
}

// Replaces those bits. Writes no other bits, and no byte beyond them; count <= 64.
inline void store_mask_bits(std::uint8_t* row, std::int64_t begin, int count, std::uint64_t bits) {
  for (int done = 0; done < count;) {
    std::uint8_t& byte = row[(begin + done) / 8];
    const int shift = static_cast<int>((begin + done) % 8);
    const int here = std::min(8 - shift, count - done);
    const auto places = static_cast<unsigned>(((1u << here) - 1) << shift);
    byte = static_cast<std::uint8_t>((byte & ~places) | ((static_cast<unsigned>(bits >> done) << shift) & places));
    done += here;
  }
}

// Rows of a compressed matrix, from one block of columns on.
struct NmRows {
  const void* values = nullptr;  // first row's first value in the block
  DType dtype = DType::f32;
  std::int64_t value_stride = 0;       // values a row of the whole matrix
  const std::uint8_t* mask = nullptr;  // first row's mask
  std::int64_t mask_stride = 0;
  std::int64_t begin = 0;    // first column
  std::int64_t columns = 0;  // columns in the block, whole groups
  std::int64_t rows = 0;
};

// One block of weights as the product reads it. Each group of three rows has its columns sorted by which of the rows
// keep them (7 subsets), and each row's weights in that order.
struct NmPackedRows {
  std::uint8_t* counts = nullptr;   // (groups, 8): columns of each subset, in the order of kNmSubsets
  std::uint8_t* columns = nullptr;  // (groups, column_stride)
  float* weights = nullptr;         // (groups, 3, weight_stride)
  std::int64_t groups = 0;
  std::int64_t column_stride = 0;
  std::int64_t weight_stride = 0;
};
inline constexpr int kNmSubsets[7] = {7, 3, 5, 6, 1, 2, 4};  // bit r: row r keeps the column

// A tile of y, (tokens, rows) at `y`, from its transpose.
struct NmStore {
  void* y = nullptr;
  DType dtype = DType::f32;
  std::int64_t row_stride = 0;  // elements
  const float* bias = nullptr;  // of the tile's first row, or null
  float scale = 1.0f;
  bool accumulate = false;
};

// One element of y, for kernels that make one at a time.
inline void nm_store_one(const NmStore& out, std::int64_t token, std::int64_t row, float sum) {
  sum *= out.scale;
  if (out.bias) sum += out.bias[row];
  const std::int64_t at = token * out.row_stride + row;
  if (out.dtype == DType::f32) {
    auto* y = static_cast<float*>(out.y);
    y[at] = out.accumulate ? y[at] + sum : sum;
  } else {
    auto* y = static_cast<bf16*>(out.y);
    y[at] = bf16(out.accumulate ? static_cast<float>(y[at]) + sum : sum);
  }
}

struct NmMatmulKernels {
  // panel (columns, width) fp32 = transpose of x (tokens, columns); width is a multiple of the lanes, and places of
  // tokens beyond `tokens` become 0.
  void (*load_panel)(float* panel, std::int64_t width, const void* x, DType dtype, std::int64_t row_stride,
                     std::int64_t tokens, std::int64_t columns);
  void (*pack_rows)(const NmPackedRows& out, const NmRows& in);
  // sums (rows, width) [+]= packed weights times panel (columns, width), width = vectors x lanes. `next` is read ahead.
  void (*multiply)(float* sums, const NmPackedRows& weights, const float* panel, int vectors, bool first,
                   const float* next);
  void (*store_rows)(const NmStore& out, const float* sums, std::int64_t width, std::int64_t tokens, std::int64_t rows);
};
const NmMatmulKernels& nm_matmul_kernels(NmVectors vectors);
// pack_rows with AVX512_VBMI2, at most 64 columns a block; kept_values: values of a row in the block.
void nm_pack_rows_words(const NmPackedRows& out, const NmRows& in, int kept_values);

// One block of the gradient: kept entries of rows x columns, from chunks of `vectors` vectors of tokens.
struct NmGradientBlock {
  float* gradient = nullptr;  // first row's first entry in the block
  std::int64_t gradient_stride = 0;
  const void* dy = nullptr;            // (rows, width) fp32, or token pairs of bf16
  const void* x = nullptr;             // (columns, width)
  const std::uint8_t* mask = nullptr;  // first row's mask
  std::int64_t mask_stride = 0;
  std::int64_t begin = 0;  // first column, for the mask
  int columns = 0;         // at most 64
  std::int64_t rows = 0;
  bool add = false;
  const void* next = nullptr;  // x of the block that follows, as long as this one: read ahead
};
struct NmGradientKernels {
  void (*multiply)(const NmGradientBlock& block, int vectors);  // vectors: a power of two up to the plan's
};
const NmGradientKernels& nm_gradient_kernels(NmVectors vectors);

// AVX512_BF16: 2:4 weights of bf16, 64 rows and some groups of four columns, as nm_dot_forward.cpp multiplies them. For
// each group and 16 rows 64 bytes of weight pairs, then as many that shuffle the group's inputs. Aligned to 64 bytes.
inline constexpr std::int64_t kNmDotRows = 64;
struct NmDotTile {
  static constexpr std::int64_t kGroupBytes = kNmDotRows * 8;

  std::byte* memory = nullptr;
  std::byte* at(std::int64_t group, int vector) const { return memory + group * kGroupBytes + vector * 128; }
};
struct NmDotInputs {
  const bf16* x = nullptr;  // (tokens, columns), rows `stride` apart
  std::int64_t stride = 0;
  std::int64_t tokens = 0;
  std::int64_t columns = 0;  // whole groups
  bool first = false;
};
struct NmDotForwardKernels {
  // The tile of at most 64 rows; where there are fewer, zeros.
  void (*spread)(const NmDotTile& tile, const NmRows& from);
  // sums (tokens, 64) [+]= x times the tile.
  void (*multiply)(float* sums, const NmDotTile& tile, const NmDotInputs& in);
  void (*store)(const NmStore& out, const float* sums, std::int64_t tokens, std::int64_t rows);
};
const NmDotForwardKernels& nm_dot_forward_kernels();

// AVX512_BF16. Pairs are two bf16 in 32 bits.
struct NmDotGradientKernels {
  // pairs (columns, width) = transpose of x (tokens, columns), its rows `stride` apart: of each 32 tokens 16 words of
  // tokens t and t + 16. width is a multiple of 16; places of tokens beyond `tokens` become 0.
  void (*load_pairs)(std::uint32_t* pairs, std::int64_t width, const bf16* x, std::int64_t stride, std::int64_t tokens,
                     std::int64_t columns);
  void (*gradient)(const NmGradientBlock& block, int vectors);
};
const NmDotGradientKernels& nm_dot_gradient_kernels();

// Decoding: y (tokens, rows) for at most kNmDecodeTokens tokens.
struct NmDecodeArgs {
  NmStore out;                // row 0 of y; bias of the matrix
  NmRows weights;             // the whole matrix; columns = K
  const float* x = nullptr;   // (tokens, x_stride) fp32, zero beyond K; for nm_decode_words split as it says
  std::int64_t x_stride = 0;  // a multiple of 64
  int tokens = 0;
};
struct NmDecodeKernels {
  void (*decode)(const NmDecodeArgs& args, std::int64_t row_begin, std::int64_t row_end);
};
const NmDecodeKernels& nm_decode_kernels(NmVectors vectors);
// AVX512_VBMI2, bf16 weights. Each 32 inputs of x are stored as the 16 at even, then the 16 at odd places.
void nm_decode_words(const NmDecodeArgs& args, std::int64_t row_begin, std::int64_t row_end);

struct NmPackKernels {
  // Up to 64 columns: out[c] = next value where bit c is set, else +0; returns the number of values taken. out has room
  // for 64; values at and beyond `end` are not read.
  int (*expand)(float* out, std::uint64_t bits, int columns, const void* values, const void* end, DType dtype);
  // Up to 64 columns: out = in where bits are set, without gaps; returns their number. out has room for 64 + 16.
  int (*compress)(float* out, std::uint64_t bits, int columns, const float* in);
  // rows (of, 64) of values with the bits that each row keeps: bits[c] gets the `keep` largest of column c, by
  // magnitude among the kept ones, smaller rows first; then the smallest rows not kept.
  void (*select_rows)(std::uint32_t* bits, const float* rows, const std::uint64_t* kept, int keep, int of);
};
const NmPackKernels& nm_pack_kernels(NmVectors vectors);

}  // namespace filigree
