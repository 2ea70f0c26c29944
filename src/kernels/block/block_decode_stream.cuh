// Block-sparse weights for decode_stream.cuh. A piece is some rows of a block row. The kept blocks of that row make one
// dense matrix, and x's places follow it: block after block of the list.
//
// A step is 64 inputs of one block, of each row 128 bytes in eight pieces of 16.
#pragma once

#include "kernels/block/block_activation.cuh"
#include "kernels/block/block_matmul.h"
#include "kernels/decode_cluster.cuh"

namespace filigree::decode {

// What joins a sum: zeros where there is none.
struct OutputRest {
  float bias = 0.0f, residual = 0.0f;
};
__device__ __forceinline__ OutputRest output_rest(const BlockForwardArgs& args, std::int64_t token,
                                                  std::int64_t output) {
  OutputRest rest;
  if (args.bias != nullptr) rest.bias = args.bias[output];
  if (args.residual != nullptr)
    rest.residual = __bfloat162float(static_cast<const __nv_bfloat16*>(args.residual)[token * args.grid.rows + output]);
  return rest;
}

__device__ __forceinline__ void write_output(const BlockForwardArgs& args, std::int64_t token, std::int64_t output,
                                             float sum, const OutputRest& rest) {
  const std::int64_t index = token * args.grid.rows + output;
  if (args.bias != nullptr) sum += rest.bias;
  sum = __bfloat162float(__float2bfloat16_rn(sum));
  if (args.pre_activation != nullptr)
    static_cast<__nv_bfloat16*>(args.pre_activation)[index] = __float2bfloat16_rn(sum);
  sum = __bfloat162float(__float2bfloat16_rn(activated(args.activation, sum)));
  if (args.residual != nullptr) sum += rest.residual;
  static_cast<__nv_bfloat16*>(args.y)[index] = __float2bfloat16_rn(sum);
}

struct BlockDecodeWeights {
  static constexpr int kStepInputs = 64;
  static constexpr int kStageBytes = cuda::kDecodeTileBytes;

  BlockForwardArgs args;
  int block_steps;

  struct Part {
    int first_row;  // of its block row
    int first_entry, inputs;
  };
  __device__ Part part(const cuda::DecodeRows& rows) const {
    const int height = args.grid.block.rows, line = rows.first / height;
    const int first_entry = args.lists.row_start[line];
    return {.first_row = rows.first - line * height,
            .first_entry = first_entry,
            .inputs = (args.lists.row_start[line + 1] - first_entry) * args.grid.block.columns};
  }
  // A block may hang over W's right edge: its entries there are zeros, but x ends.
  __device__ int x_at(const Part& part, int place) const {
    const int columns = args.grid.block.columns, entry = place / columns;
    const int column = args.lists.row_entries[part.first_entry + entry].other * columns + place % columns;
    return column < args.grid.columns ? column : -1;
  }

  __device__ __forceinline__ void copy(const Part& part, int row, int count, int step, std::uint32_t to,
                                       int lane) const {
    const int columns = args.grid.block.columns, entry = step / block_steps, within = step % block_steps;
    const auto* from = static_cast<const __nv_bfloat16*>(args.values) +
                       std::int64_t{part.first_entry + entry} * (args.grid.block.rows * columns) +
                       ((part.first_row + row) * columns + within * kStepInputs);
    cuda::copy_tile(to, from, 2 * columns, count, lane);
  }

  template <int kTokenTiles>
  struct Operands {
    std::uint32_t w[4][4];
    std::uint32_t x[2][kTokenTiles][4];  // of two products each
  };
  template <int kTokenTiles>
  __device__ __forceinline__ void load(Operands<kTokenTiles>& to, std::uint32_t from,
                                       const std::uint32_t (&x)[kTokenTiles], int lane) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) cuda::load_matrices(to.w[i], cuda::tile_row(from, 2 * i ^ lane / 16, lane));
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int t = 0; t < kTokenTiles; ++t) cuda::load_matrices(to.x[i][t], x[t] + 64 * i + lane / 8 * 16);
  }
  template <int kTokenTiles>
  __device__ __forceinline__ void multiply(const Part&, int, float (&sums)[kTokenTiles][4],
                                           const Operands<kTokenTiles>& from) const {
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int t = 0; t < kTokenTiles; ++t) {
        const std::uint32_t(&x)[4] = from.x[i / 2][t];
        cuda::multiply(sums[t], from.w[i], x[i % 2 * 2], x[i % 2 * 2 + 1]);
      }
  }

  using Rest = OutputRest;
  __device__ __forceinline__ Rest rest(int output, int token) const {
    return output_rest(args, token, output);
  }
  __device__ __forceinline__ void write(int output, int token, float sum, const Rest& rest) const {
    write_output(args, token, output, sum, rest);
  }
};

// Whole steps, and rows of x that begin at multiples of 16 bytes.
inline bool suits_decode_stream(const BlockGrid& grid) {
  return grid.block.columns % BlockDecodeWeights::kStepInputs == 0 && grid.columns % 8 == 0 &&
         std::max(grid.rows, grid.columns) <= INT32_MAX / 2;
}

template <int kWarps, int kStages>
void launch_block_decode_stream(const BlockForwardArgs& args, CUstream_st* stream,
                                cuda::DecodeClusters clusters = cuda::DecodeClusters::many_tokens) {
  const BlockGrid& grid = args.grid;
  constexpr int kUnit = 8;  // rows: pieces of fewer would gather x for next to nothing
  const BlockDecodeWeights weights = {.args = args,
                                      .block_steps = grid.block.columns / BlockDecodeWeights::kStepInputs};
  const cuda::DecodeLayout layout = {.x = static_cast<const __nv_bfloat16*>(args.x),
                                     .rows = static_cast<int>(grid.rows),
                                     .columns = static_cast<int>(grid.columns),
                                     .tokens = static_cast<int>(args.tokens),
                                     .unit = kUnit,
                                     .line = grid.block.rows,
                                     .settled = args.settled};
  // Room for x of the mean block row.
  const std::int64_t lines = grid.block_rows(), mean = (args.lists.blocks + lines - 1) / lines;
  const std::int64_t inputs = mean * grid.block.columns, most_inputs = grid.block_columns() * grid.block.columns;
  const int most_rows = std::min<int>(grid.block.rows, cuda::kMostShareRows);
  cuda::launch_decode<kWarps, kStages>(weights, layout, inputs, most_inputs, most_rows, clusters, stream);
}

}  // namespace filigree::decode
