// 2:4 weights for decode_stream.cuh: 1 + 1/8 bytes a weight, and the tensor cores' own format but for the mask, which
// becomes metadata a word of eight groups at a time.
//
// A step is 128 inputs: of each row 128 bytes of values, in eight pieces of 16, and 16 bytes of mask. Lane 4g + t turns
// mask word t of rows g and g + 8 into metadata, 32 inputs of both. Each instruction takes 16 of those inputs from two
// neighbouring lanes: so it multiplies two pieces of values that are not neighbours, and the pieces of x that belong to
// them.
#pragma once

#include "kernels/decode_cluster.cuh"
#include "kernels/nm/nm_matmul.h"
#include "kernels/nm/nm_metadata.h"

namespace filigree::cuda {

struct NmDecodeWeights {
  static constexpr int kStepInputs = 128, kWidth = 64;  // K is a multiple of kWidth
  static constexpr int kRowBytes = 128;                 // of values, in a step
  static constexpr int kMaskStart = kDecodeTileRows * kRowBytes;
  static constexpr int kStageBytes = kMaskStart + kDecodeTileRows * 16;

  __nv_bfloat16* y;            // (T, N)
  const std::uint8_t* values;  // (N, K/2) bf16
  const std::uint8_t* mask;    // (N, K/8)
  const float* bias;           // (N) or null
  int rows, columns;           // N, K
  float scale;
  bool accumulate;

  struct Part {
    int first, inputs;
  };
  __device__ Part part(const DecodeRows& piece) const { return {piece.first, columns}; }
  __device__ int x_at(const Part& part, int place) const { return place < part.inputs ? place : -1; }

  // Rows that are not there keep what the stage held. Their masks are copies of the last row's: metadata must be legal.
  __device__ __forceinline__ void copy(const Part& part, int row, int count, int step, std::uint32_t to,
                                       int lane) const {
    const int left = part.inputs - step * kStepInputs;
    if (16 * (lane % 8) < left)
      copy_tile(to, values + std::int64_t{part.first + row} * columns + step * kStepInputs, columns, count, lane);
    const int half = lane % 2;
    if (64 * half < left)
      copy_8(to + kMaskStart + 8 * lane, mask +
                                             std::int64_t{part.first + row + min(lane / 2, count - 1)} * (columns / 8) +
                                             step * (kStepInputs / 8) + 8 * half);
  }

  template <int kTokenTiles>
  struct Operands {
    std::uint32_t w[4][4], metadata[2];
    std::uint32_t x[4][kTokenTiles][4];
  };
  // Of the four products pieces 0 and 2 are the first one's, 1 and 3 the second one's, and so on.
  template <int kTokenTiles>
  __device__ __forceinline__ void load(Operands<kTokenTiles>& to, std::uint32_t from,
                                       const std::uint32_t (&x)[kTokenTiles], int lane) const {
    const std::uint32_t word = from + kMaskStart + 4 * lane;
    const std::uint32_t upper = metadata_of(load_word(word)), lower = metadata_of(load_word(word + 8 * 16));
    to.metadata[0] = __byte_perm(upper, lower, 0x5410);
    to.metadata[1] = __byte_perm(upper, lower, 0x7632);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int piece = i / 2 * 4 + i % 2;
      load_matrices(to.w[i], tile_row(from, piece ^ lane / 16 * 2, lane));
#pragma unroll
      for (int t = 0; t < kTokenTiles; ++t)
        load_matrices(to.x[i][t], x[t] + 32 * piece + lane / 16 * 64 + lane / 8 % 2 * 16);
    }
  }
  template <int kTokenTiles>
  __device__ __forceinline__ void multiply(const Part& part, int step, float (&sums)[kTokenTiles][4],
                                           const Operands<kTokenTiles>& from) const {
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int t = 0; t < kTokenTiles; ++t) multiply_24<0>(sums[t], from.w[i], from.x[i][t], from.metadata[i]);
    if (step * kStepInputs + kStepInputs / 2 >= part.inputs) return;  // the second half is not there
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int t = 0; t < kTokenTiles; ++t) multiply_24<1>(sums[t], from.w[2 + i], from.x[2 + i][t], from.metadata[i]);
  }

  struct Rest {
    float bias = 0.0f, before = 0.0f;
  };
  __device__ __forceinline__ Rest rest(int output, int token) const {
    Rest made;
    if (bias != nullptr) made.bias = bias[output];
    if (accumulate) made.before = to_float(y[std::int64_t{token} * rows + output]);
    return made;
  }
  __device__ __forceinline__ void write(int output, int token, float sum, const Rest& rest) const {
    sum = scale * sum + rest.bias;
    y[std::int64_t{token} * rows + output] = from_float<__nv_bfloat16>(accumulate ? sum + rest.before : sum);
  }
};

// Arguments that takes_nm_decode, with K a multiple of NmDecodeWeights::kWidth. `settled`: see DecodeLayout.
template <int kWarps, int kStages>
void launch_nm_decode_stream(const NmMatmulArgs& args, bool settled, CUstream_st* stream,
                             DecodeClusters clusters = DecodeClusters::many_tokens) {
  const NmMatrix& weight = args.weight;
  const NmDecodeWeights weights = {.y = static_cast<__nv_bfloat16*>(args.y.data),
                                   .values = static_cast<const std::uint8_t*>(weight.values.data),
                                   .mask = weight.mask.as<std::uint8_t>(),
                                   .bias = args.bias.empty() ? nullptr : args.bias.as<float>(),
                                   .rows = static_cast<int>(weight.rows),
                                   .columns = static_cast<int>(weight.columns),
                                   .scale = args.scale,
                                   .accumulate = args.accumulate};
  // All rows take all of x: a share is one piece.
  const DecodeLayout layout = {.x = static_cast<const __nv_bfloat16*>(args.x.data),
                               .rows = weights.rows,
                               .columns = weights.columns,
                               .tokens = static_cast<int>(args.x.shape[0]),
                               .line = weights.rows,
                               .settled = settled};
  launch_decode<kWarps, kStages>(weights, layout, weight.columns, weight.columns, kMostShareRows, clusters, stream);
}

}  // namespace filigree::cuda
