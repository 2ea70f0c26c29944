// Tables of the CPU's vector kernels, one a target, and the numbers that drivers and kernels share. The drivers
// (block_lines_cpu.cpp, block_dw_cpu.cpp, block_decode.cpp) own blocking, threads and memory; a kernel sees one
// tile.
//
// "Words" below are fp32 values, or with AVX512_BF16 two neighbouring bf16 of the reduction in 32 bits: either way one
// multiply-add instruction takes a word of each operand in each lane.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "kernels/block/block_format.h"
#include "kernels/nm/nm_target.h"

namespace filigree {

// A tile of results is `rows` broadcast operands x up to kBlockTileVectors vectors: 8 x 3 sums of 32 registers or 4 x 3
// of 16, beside three loaded vectors and a broadcast.
constexpr int block_tile_rows(NmVectors vectors) {
  return vectors == NmVectors::avx512 ? 8 : 4;
}
inline constexpr int kBlockTileVectors = 3;

// Forward and dX: sums (tile rows, width) [+]= over `count` entries of a line's list, over the block's depth:
// weights[entry][step][row] · panel[(entry.other · depth + step)][lane].
struct BlockLineTile {
  float* sums = nullptr;          // (tile rows, width), width = vectors x lanes
  const void* weights = nullptr;  // words (count, depth, tile rows)
  const void* panel = nullptr;    // words (entries' lines x depth, width): tokens in the lanes
  const BlockEntry* entries = nullptr;
  std::int64_t count = 0;
  std::int64_t depth = 0;  // words of a block along the reduction
  bool first = false;      // sums start at zero
};

// dW: up to three vectors of inputs of one block row x the tile's rows, over a chunk of tokens.
struct BlockGradientPiece {
  float* gradient[kBlockTileVectors] = {};  // first row's entries of each vector; rows are `stride` apart
  const void* x[kBlockTileVectors] = {};    // words (steps, lanes)
  int lanes[kBlockTileVectors] = {};        // entries of the gradient in each vector, the others are not written
  const void* dy = nullptr;                 // words (steps, tile rows)
  std::int64_t stride = 0;
  std::int64_t steps = 0;
  int rows = 0;     // rows of the gradient, at most the tile's
  int vectors = 0;  // 1 .. kBlockTileVectors
  bool add = false;
};

// Decoding: y (tokens, N) for a few tokens, block rows [begin, end).
inline constexpr int kBlockDecodeTokens = 4;
struct BlockDecodeArgs {
  void* y = nullptr;             // (tokens, N) of the values' type
  const float* bias = nullptr;   // (N) or null
  const void* values = nullptr;  // (blocks, block.rows, block.columns)
  DType dtype = DType::f32;
  const float* x = nullptr;  // (tokens, x_stride): columns of the whole grid and a vector more, zero beyond K
  std::int64_t x_stride = 0;
  int tokens = 0;  // 1 .. kBlockDecodeTokens
  BlockGrid grid;
  const std::int32_t* row_start = nullptr;
  const BlockEntry* row_entries = nullptr;
};

struct BlockKernels {
  void (*multiply_line)(const BlockLineTile& tile, int vectors);
  void (*multiply_gradient)(const BlockGradientPiece& piece);
  void (*decode)(const BlockDecodeArgs& args, std::int64_t begin, std::int64_t end);
};
const BlockKernels& block_kernels(NmVectors vectors);

// The first two with vdpbf16ps, sixteen lanes: for processors with AVX512_BF16.
void block_multiply_line_pairs(const BlockLineTile& tile, int vectors);
void block_multiply_gradient_pairs(const BlockGradientPiece& piece);

}  // namespace filigree
