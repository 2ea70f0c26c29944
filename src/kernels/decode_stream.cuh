// y (T, N) = x (T, K) · Wᵀ for at most 16 tokens, W stored in any form that a warp can copy to shared memory in steps
// of 16 rows: what the kernels of 2:4 (nm_decode_cuda.cu) and of block-sparse weights (block_decode_cuda.cu) share.
//
// Such a product takes as long as W takes to arrive. Little's law says how much of it must be on its way: an H200's
// memory, 4.3 TB/s and nearly 1 us away, is busy with 32 KB for each of its multiprocessors, without a pause from the
// first to the last byte. So each warp copies ahead of what it multiplies, into a ring of its own of kStages steps (8
// warps x 4 steps x 2 KB), across all borders of its work; only at the end does the ring run empty. Tensor cores
// multiply, and so all that the ordinary units do is to issue copies.
//
// A thread block has some rows of W, in tiles of at most 16, and all thread blocks have about as many and run at the
// same time. Its warps take the steps of a tile in turn, and add their sums in order. x lies in shared memory, all of
// it, or, where it is too large, chunk by chunk; each thread block reads it once.
//
// `Weights` says how W is stored. It is a struct of the kernel's arguments, with
//   kStepInputs, kStageBytes              of a step
//   kThreadBlocks                         on a multiprocessor that registers must suffice for
//   Part, part()                          a thread block's part: `rows` of W, `inputs` of each of them, for which x has
//                                         the places 0 .. inputs - 1, and what else the functions below need
//   x_at(part, place)                     input of x at this place, a multiple of 8; -1: zeros
//   copy(part, row, rows, step, to, lane) asks for a step of `rows` rows of the part, from `row` on
//   Operands, load(to, from, x, lane)     of a step, from its stage and from x: shared memory, the place of the step in
//                                         row l % 8 of 8 tokens
//   multiply(part, step, sums, operands)  adds its products
//   write(part, row, token, sum)          takes a sum of all inputs
#pragma once

#include <algorithm>

#include "kernels/cuda_common.cuh"
#include "kernels/decode_warp.cuh"

namespace filigree::cuda {

inline constexpr int kDecodeTileTokens = 8;
// 64 KB of W on the way to a thread block. filigree_cuda_bench --only 13b- compares others.
inline constexpr int kDecodeStreamWarps = 8, kDecodeStages = 4;

// How x and sums lie in shared memory.
struct DecodeLayout {
  const __nv_bfloat16* x = nullptr;  // (T, K)
  int columns = 0;                   // K, between rows of x
  int tokens = 0;                    // T
  int most_steps = 0;                // of a chunk of x, a multiple of the warps
  int kept_rows = 0;                 // of sums between the chunks; 0: there is one chunk
  bool settled = false;              // W is not written by the kernel before this one in the stream
};

// Of a thread block's steps a warp takes every kWarps-th, tile after tile, chunk after chunk.
struct DecodePlace {
  int chunk = 0, tile = 0, step = 0;  // step of the chunk
};

template <int kWarps, typename Weights>
class DecodeWork {
 public:
  __device__ DecodeWork(const typename Weights::Part& part, int most_steps) {
    steps_ = (part.inputs + Weights::kStepInputs - 1) / Weights::kStepInputs;
    chunks_ = (steps_ + most_steps - 1) / most_steps;
    chunk_steps_ = ((steps_ + chunks_ - 1) / chunks_ + kWarps - 1) / kWarps * kWarps;
    tiles_ = (part.rows + kDecodeTileRows - 1) / kDecodeTileRows;
    tile_rows_ = (part.rows + tiles_ - 1) / tiles_;
    tiles_ = (part.rows + tile_rows_ - 1) / tile_rows_;
  }
  __device__ int chunks() const { return chunks_; }
  __device__ int chunk_steps() const { return chunk_steps_; }
  __device__ int steps(int chunk) const { return min(chunk_steps_, steps_ - chunk * chunk_steps_); }
  __device__ int tiles() const { return tiles_; }
  __device__ int tile_rows() const { return tile_rows_; }

  __device__ void advance(DecodePlace& place, int warp) const {
    place.step += kWarps;
    while (place.chunk < chunks_ && place.step >= steps(place.chunk)) {
      place.step = warp;
      if (++place.tile == tiles_ || warp >= steps(place.chunk)) {
        place.tile = 0;
        ++place.chunk;
      }
    }
  }

 private:
  int steps_, chunks_, chunk_steps_, tiles_, tile_rows_;
};

// --- Kernel --------------------------------------------------------------------------------------------------------

// Two more warps bring x and take the sums, so that those that multiply never wait for anything but their own copies.
//
// The kernel may begin while the one before it in the stream still runs. Where W is settled, it fills its rings then;
// all else is left to the two warps, which wait.
inline constexpr int kDecodeHelpers = 2;

template <int kWarps, int kStages, int kTokenTiles, typename Weights>
__global__ void __launch_bounds__((kWarps + kDecodeHelpers) * kWarp, kWarps > 8 ? 1 : Weights::kThreadBlocks)
    decode_stream_kernel(const __grid_constant__ Weights weights, const __grid_constant__ DecodeLayout layout) {
  constexpr int kTokens = kTokenTiles * kDecodeTileTokens, kTileSums = kDecodeTileRows * kTokens;
  extern __shared__ __align__(128) std::uint8_t shared[];  // rings; sums of two tiles in turn; sums between chunks; x
  auto* const partial = reinterpret_cast<float*>(shared + kWarps * kStages * Weights::kStageBytes);
  float* const kept = partial + 2 * kWarps * kTileSums;
  const std::uint32_t x_start = shared_address(kept + layout.kept_rows * layout.tokens);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;

  let_next_begin();
  if (!layout.settled) wait_for_previous();
  const typename Weights::Part part = weights.part();
  if (part.rows <= 0) return;
  const DecodeWork<kWarps, Weights> work(part, layout.most_steps);
  const int chunk_inputs = work.chunk_steps() * Weights::kStepInputs;
  // 16 bytes more than a row needs: so eight rows lie in different banks.
  const std::uint32_t x_stride = 2 * chunk_inputs + 16;

  // Barriers: when x of a chunk is there; for each tile, when all sums of it are.
  if (warp >= kWarps) {
    constexpr int kThreads = kDecodeHelpers * kWarp;
    const int thread = static_cast<int>(threadIdx.x) - kWarps * kWarp;
    int turn = 0;
    wait_for_previous();
    for (int chunk = 0; chunk < work.chunks(); ++chunk) {
      const int first = chunk * chunk_inputs, count = work.steps(chunk) * Weights::kStepInputs;
#pragma unroll 4
      for (int i = 8 * thread; i < count; i += 8 * kThreads) {
        const int column = weights.x_at(part, first + i);
        const __nv_bfloat16* from = layout.x + max(column, 0);
        std::uint32_t to = x_start + 2 * i;
        for (int token = 0; token < layout.tokens; ++token, from += layout.columns, to += x_stride)
          copy_16_or_zeros(to, from, column >= 0);
      }
      copies_commit();
      copies_wait<0>();
      __syncthreads();
      for (int tile = 0; tile < work.tiles(); ++tile, turn ^= 1) {
        __syncthreads();
        // The next tile's sums come to the other place; those of the one after it, here, only after the next barrier.
        const int row0 = tile * work.tile_rows(), rows = min(work.tile_rows(), part.rows - row0);
        for (int i = thread; i < rows * layout.tokens; i += kThreads) {
          const int token = i / rows, row = i % rows;
          const float* from = partial + turn * kWarps * kTileSums +
                              (token / kDecodeTileTokens * kDecodeTileRows + row) * kDecodeTileTokens +
                              token % kDecodeTileTokens;
          float* const rest = kept + (row0 + row) * layout.tokens + token;  // this same thread's
          float sum = chunk > 0 ? *rest : 0.0f;
#pragma unroll
          for (int w = 0; w < kWarps; ++w) sum += from[w * kTileSums];
          if (chunk + 1 < work.chunks())
            *rest = sum;
          else
            weights.write(part, row0 + row, token, sum);
        }
      }
    }
    return;
  }

  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::uint32_t ring = shared_address(shared) + warp * kStages * Weights::kStageBytes;
  // One group of copies each, whether there is anything left or not: so the groups count the steps.
  DecodePlace ahead = {.chunk = 0, .tile = 0, .step = warp - kWarps};
  const auto copy_ahead = [&](int stage) {
    work.advance(ahead, warp);
    if (ahead.chunk < work.chunks()) {
      const int row = ahead.tile * work.tile_rows();
      weights.copy(part, row, min(work.tile_rows(), part.rows - row), ahead.chunk * work.chunk_steps() + ahead.step,
                   ring + stage * Weights::kStageBytes, lane);
    }
    copies_commit();
  };
#pragma unroll 1
  for (int stage = 0; stage < kStages; ++stage) copy_ahead(stage);

  // Tokens that are not there are read as the last one; their sums go nowhere.
  std::uint32_t x_rows[kTokenTiles];
#pragma unroll
  for (int t = 0; t < kTokenTiles; ++t)
    x_rows[t] = x_start + min(t * kDecodeTileTokens + lane % 8, layout.tokens - 1) * x_stride;
  int stage = 0, turn = 0;
  for (int chunk = 0; chunk < work.chunks(); ++chunk) {
    const int first_step = chunk * work.chunk_steps();
    __syncthreads();
    for (int tile = 0; tile < work.tiles(); ++tile, turn ^= 1) {
      float sums[kTokenTiles][4] = {};
      for (int step = warp; step < work.steps(chunk); step += kWarps) {
        copies_wait<kStages - 1>();
        __syncwarp();
        std::uint32_t x[kTokenTiles];
#pragma unroll
        for (int t = 0; t < kTokenTiles; ++t) x[t] = x_rows[t] + step * (2 * Weights::kStepInputs);
        typename Weights::template Operands<kTokenTiles> operands;
        weights.load(operands, ring + stage * Weights::kStageBytes, x, lane);
        __syncwarp();  // all have read the stage before it is written again
        copy_ahead(stage);
        weights.multiply(part, first_step + step, sums, operands);
        stage = stage + 1 == kStages ? 0 : stage + 1;
      }
      float* const mine = partial + (turn * kWarps + warp) * kTileSums;
#pragma unroll
      for (int t = 0; t < kTokenTiles; ++t)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          *reinterpret_cast<float2*>(mine + (t * kDecodeTileRows + 8 * half + lane / 4) * kDecodeTileTokens +
                                     2 * (lane % 4)) = make_float2(sums[t][2 * half], sums[t][2 * half + 1]);
      __syncthreads();
    }
  }
}

// --- Launcher ------------------------------------------------------------------------------------------------------

// Of the current GPU; one GPU serves a process.
struct DecodeGpu {
  int major = 0;  // compute capability
  int multiprocessors = 0;
  int shared_bytes = 0;  // the most of a thread block
  // Enough of it for any product (8.0, 9.0 and 10.0 have it).
  bool streams() const { return shared_bytes >= 160 * 1024; }
  static const DecodeGpu& current() {
    static const DecodeGpu gpu = [] {
      int device = 0;
      DecodeGpu made;
      check(cudaGetDevice(&device));
      check(cudaDeviceGetAttribute(&made.major, cudaDevAttrComputeCapabilityMajor, device));
      check(cudaDeviceGetAttribute(&made.multiprocessors, cudaDevAttrMultiProcessorCount, device));
      check(cudaDeviceGetAttribute(&made.shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
      return made;
    }();
    return gpu;
  }
};

// Thread blocks of `part_rows` rows with at most `inputs` inputs each.
template <int kWarps, int kStages, int kTokenTiles, typename Weights>
void launch_decode_stream(const Weights& weights, DecodeLayout layout, std::int64_t blocks, int part_rows,
                          std::int64_t inputs, CUstream_st* stream) {
  constexpr int kReserved = 1024;  // of a thread block, for the system
  const auto kernel = decode_stream_kernel<kWarps, kStages, kTokenTiles, Weights>;
  const DecodeGpu& gpu = DecodeGpu::current();
  static const bool allowed = [&] {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, gpu.shared_bytes));
    return true;
  }();
  static_cast<void>(allowed);
  // More thread blocks than multiprocessors: two on each, so that all of them run.
  const int most_bytes = blocks > gpu.multiprocessors ? (gpu.shared_bytes - kReserved) / 2 : gpu.shared_bytes;
  const std::int64_t fixed = kWarps * kStages * Weights::kStageBytes +
                             std::int64_t{2} * kWarps * kDecodeTileRows * kTokenTiles * kDecodeTileTokens * 4;
  const std::int64_t steps = (inputs + Weights::kStepInputs - 1) / Weights::kStepInputs;
  const auto x_bytes = [&](std::int64_t of_steps) {
    return layout.tokens * (of_steps * Weights::kStepInputs * 2 + 16);
  };
  std::int64_t chunk = (steps + kWarps - 1) / kWarps * kWarps;
  std::int64_t kept_bytes = 0;
  if (fixed + x_bytes(chunk) > most_bytes) {
    layout.kept_rows = (part_rows + 3) / 4 * 4;
    kept_bytes = std::int64_t{layout.kept_rows} * layout.tokens * 4;
    const std::int64_t left = (most_bytes - fixed - kept_bytes) / layout.tokens - 16;
    chunk = std::max<std::int64_t>(left / (Weights::kStepInputs * 2) / kWarps, 1) * kWarps;
  }
  layout.most_steps = static_cast<int>(chunk);
  const auto bytes = static_cast<std::size_t>(fixed + kept_bytes + x_bytes(chunk));
  cudaLaunchAttribute overlap = {};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = static_cast<unsigned int>(blocks);
  config.blockDim = (kWarps + kDecodeHelpers) * kWarp;
  config.dynamicSmemBytes = bytes;
  config.stream = stream;
  config.attrs = &overlap;
  config.numAttrs = gpu.major >= 9 ? 1 : 0;
  check(cudaLaunchKernelEx(&config, kernel, weights, layout));
}

}  // namespace filigree::cuda
