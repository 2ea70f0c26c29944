// The forward product of up to 16 tokens, as in decoding: decode_stream.cuh for blocks of a multiple of 64 inputs, the
// kernel here for any block.
//
// A thread block computes 16 outputs of one block row; its warps share the reduction step by step, and add their sums
// in order in the end. Tensor cores multiply (mma.m16n8k16: 16 outputs x 8 tokens), so that the ordinary units have
// nothing to do but to load. The order of a reduction's inputs is free as long as both operands follow it, which lets
// each thread load what it needs as 16 contiguous bytes: thread 4g + t holds inputs 8t .. 8t + 7 of a step's 32, of
// rows g and g + 8 of the weight and of token g. The first four of these feed one product, the others a second one.
#include <cuda_bf16.h>

#include "kernels/block/block_decode_cuda.h"
#include "kernels/block/block_decode_stream.cuh"
#include "kernels/cuda_common.cuh"

namespace filigree::decode {

namespace {

using Element = __nv_bfloat16;

constexpr int kChunk = 8;       // inputs that a thread loads at once
constexpr int kStepChunks = 4;  // of 32 inputs
constexpr int kUnroll = 4;      // steps whose loads a warp has on their way: 4 KB of weights

// Elements of `from` before `count`, then zeros. Wide: count is at most 0 or at least 8, and `from` is aligned.
template <bool kWide>
__device__ __forceinline__ uint4 load_chunk(const Element* from, std::int64_t count) {
  uint4 chunk = make_uint4(0, 0, 0, 0);
  if constexpr (kWide) {
    if (count > 0) chunk = __ldg(reinterpret_cast<const uint4*>(from));
  } else {
    std::uint32_t words[4] = {};
#pragma unroll
    for (int i = 0; i < kChunk; ++i)
      if (i < count) words[i / 2] |= std::uint32_t{__bfloat16_as_ushort(from[i])} << (16 * (i % 2));
    chunk = make_uint4(words[0], words[1], words[2], words[3]);
  }
  return chunk;
}

// The same of weights, which are read once and should leave the caches to the tokens.
template <bool kWide>
__device__ __forceinline__ uint4 load_weights(const Element* from, std::int64_t count) {
  if constexpr (!kWide) return load_chunk<false>(from, count);
  uint4 chunk = make_uint4(0, 0, 0, 0);
  if (count > 0)
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(chunk.x), "=r"(chunk.y), "=r"(chunk.z), "=r"(chunk.w)
                 : "l"(from));
  return chunk;
}

// A place in the reduction of a block row, which is cut into chunks that do not cross blocks.
struct Place {
  int entry;   // in the row's list
  int within;  // chunk of the block's row

  __device__ Place advanced(int entries, int chunks, int chunks_of_row) const {
    Place next = {entry + entries, within + chunks};
    if (next.within >= chunks_of_row) {
      next.within -= chunks_of_row;
      ++next.entry;
    }
    return next;
  }
};

// --- Kernel --------------------------------------------------------------------------------------------------------

// kTiles tiles of 8 tokens. Thread blocks: block rows x tiles of 16 outputs in each.
template <int kTiles, bool kWide>
__global__ void __launch_bounds__(32 * kDecodeWarps) decode_kernel(const BlockForwardArgs args) {
  extern __shared__ float sums[];  // (warps, 8 kTiles tokens, 16 outputs)
  const BlockGrid& grid = args.grid;
  const int columns = grid.block.columns;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int warps = static_cast<int>(blockDim.x) / 32;
  const int group = lane / 4, quarter = lane % 4;
  const int tiles_of_line = (grid.block.rows + kDecodeRows - 1) / kDecodeRows;
  const int line = static_cast<int>(blockIdx.x) / tiles_of_line;
  const int first_row = static_cast<int>(blockIdx.x) % tiles_of_line * kDecodeRows;
  const bool upper = first_row + group < grid.block.rows, lower = first_row + group + 8 < grid.block.rows;
  const int first_entry = args.lists.row_start[line];
  const int entries = args.lists.row_start[line + 1] - first_entry;
  const BlockEntry* list = args.lists.row_entries + first_entry;
  // Blocks lie in the order of the list, so that weights are asked for before the list has come.
  const Element* values = static_cast<const Element*>(args.values) + first_entry * grid.block_elements() +
                          static_cast<std::int64_t>(first_row + group) * columns;
  const auto* x = static_cast<const Element*>(args.x);

  const int chunks_of_row = (columns + kChunk - 1) / kChunk;
  const int stride = warps * kStepChunks;  // between a warp's steps
  const int stride_entries = stride / chunks_of_row, stride_chunks = stride % chunks_of_row;
  const int start = warp * kStepChunks + quarter;
  Place place = {start / chunks_of_row, start % chunks_of_row};

  float d[kTiles][4] = {};
  // All lanes of a warp take part in its products: the last step may have none left for some.
  const int steps = (entries * chunks_of_row + kStepChunks - 1) / kStepChunks;
  for (int step = warp; step < steps; step += kUnroll * warps) {
    uint4 weights[kUnroll][2], tokens[kUnroll][kTiles];
    Place places[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      places[u] = place;
      const int left = place.entry < entries ? columns - place.within * kChunk : 0;
      const Element* from = values + place.entry * grid.block_elements() + place.within * kChunk;
      weights[u][0] = load_weights<kWide>(from, upper ? left : 0);
      weights[u][1] = load_weights<kWide>(from + 8 * columns, lower ? left : 0);
      place = place.advanced(stride_entries, stride_chunks, chunks_of_row);
    }
    std::int64_t inputs[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u)
      inputs[u] = places[u].entry < entries
                      ? static_cast<std::int64_t>(list[places[u].entry].other) * columns + places[u].within * kChunk
                      : grid.columns;
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const std::int64_t left = min(grid.columns - inputs[u], std::int64_t{columns - places[u].within * kChunk});
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const int token = tile * 8 + group;
        tokens[u][tile] = load_chunk<kWide>(x + token * grid.columns + inputs[u], token < args.tokens ? left : 0);
      }
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const uint4 &a = weights[u][0], &b = weights[u][1];
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        cuda::multiply(d[tile], {a.x, b.x, a.y, b.y}, tokens[u][tile].x, tokens[u][tile].y);
        cuda::multiply(d[tile], {a.z, b.z, a.w, b.w}, tokens[u][tile].z, tokens[u][tile].w);
      }
    }
  }

#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      sums[((warp * kTiles + tile) * 8 + 2 * quarter + i % 2) * kDecodeRows + group + i / 2 * 8] = d[tile][i];
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < args.tokens * kDecodeRows; i += static_cast<int>(blockDim.x)) {
    const int row = first_row + i % kDecodeRows;
    const std::int64_t output = std::int64_t{line} * grid.block.rows + row;
    if (row >= grid.block.rows || output >= grid.rows) continue;
    float sum = 0.0f;
    for (int part = 0; part < warps; ++part) sum += sums[part * kTiles * 8 * kDecodeRows + i];
    write_output(args, i / kDecodeRows, output, sum, output_rest(args, i / kDecodeRows, output));
  }
}

}  // namespace

// --- Launcher ------------------------------------------------------------------------------------------------------

void block_forward(const BlockForwardArgs& args, const BlockPlan& plan, CUstream_st* stream) {
  const BlockGrid& grid = args.grid;
  if (suits_decode_stream(grid) && cuda::DecodeGpu::current().streams())
    return launch_block_decode_stream<cuda::kDecodeStreamWarps, cuda::kDecodeStages>(args, stream);
  const bool wide = grid.columns % kChunk == 0 && grid.block.columns % kChunk == 0;
  const int tiles = args.tokens > 8 ? 2 : 1;
  const auto kernel = tiles == 1 ? (wide ? decode_kernel<1, true> : decode_kernel<1, false>)
                                 : (wide ? decode_kernel<2, true> : decode_kernel<2, false>);
  const auto blocks = static_cast<unsigned>(grid.block_rows()) * cuda::blocks_for(grid.block.rows, kDecodeRows);
  const auto shared = static_cast<std::size_t>(plan.warps * tiles * 8 * kDecodeRows) * sizeof(float);
  kernel<<<blocks, static_cast<unsigned>(32 * plan.warps), shared, stream>>>(args);
  check(cudaGetLastError());
}

}  // namespace filigree::decode
