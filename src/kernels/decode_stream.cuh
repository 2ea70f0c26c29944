// y (T, N) = x (T, K) · Wᵀ for at most 16 tokens, W stored in any form that a warp can copy to shared memory in steps
// of 16 rows: what the kernels of 2:4 (nm_decode_cuda.cu) and of block-sparse weights (block_decode_cuda.cu) share.
//
// Such a product takes as long as W takes to arrive. Little's law says how much of it must be on its way: an H200's
// memory, 4.3 TB/s and nearly 1 us away, is busy with 32 KB for each of its multiprocessors, without a pause from the
// first to the last byte. So each warp copies ahead of what it multiplies, into a ring of its own of kStages steps (8
// warps x 4 steps x 2 KB), across all borders of its work; only at the end does the ring run empty. Tensor cores
// multiply, and so all that the ordinary units do is to issue copies.
//
// A thread block has an equal share of the rows of W, in pieces (decode_shares.h), in tiles of at most 16 rows; all
// thread blocks run at the same time. Its warps take the steps of a tile in turn, and add their sums in order. x lies
// in shared memory: all that a piece needs of it, or, where that is too large, phase by phase; the next phase's comes
// while one is multiplied.
//
// `Weights` says how W is stored. It is a struct of the kernel's arguments, with
//   kStepInputs, kStageBytes              of a step
//   Part, part(rows)                      what the functions below need of a piece: `inputs` of each of its rows, for
//                                         which x has the places 0 .. inputs - 1, and what else they ask for
//   x_at(part, place)                     input of x at this place, a multiple of 8; -1: zeros
//   copy(part, row, rows, step, to, lane) asks for a step of `rows` rows of the part, from `row` on
//   Operands, load(to, from, x, lane)     of a step, from its stage and from x: shared memory, the place of the step in
//                                         row l % 8 of 8 tokens
//   multiply(part, step, sums, operands)  adds its products
//   Rest, rest(output, token)             what joins the sum of all inputs of a row of W: read while W still arrives
//   write(output, token, sum, rest)       takes that sum
#pragma once

#include <algorithm>

#include "kernels/cuda_common.cuh"
#include "kernels/decode_shares.h"
#include "kernels/decode_warp.cuh"

namespace filigree::cuda {

inline constexpr int kDecodeTileTokens = 8;
// 96 KB of W on the way to a thread block, or, where x takes much room, 64 KB. filigree_cuda_bench --only 13b- compares
// others.
inline constexpr int kDecodeStreamWarps = 8, kDecodeStages = 6, kDecodeStagesOfMany = 4;

// How the work is cut, and how x and sums lie in shared memory. The launcher fills in the second half.
struct DecodeLayout {
  const __nv_bfloat16* x = nullptr;  // (T, K)
  int rows = 0, columns = 0;         // N; K, between rows of x
  int tokens = 0;                    // T
  int unit = 1;                      // of rows, where shares begin
  int line = 0;                      // rows at whose multiples pieces are cut
  bool settled = false;              // W is not written by the kernel before this one in the stream

  int most_steps = 0;   // of a phase, a multiple of the warps
  int most_pieces = 0;  // of a share
  int kept_rows = 0;    // of sums between the phases of a piece; 0: there is one phase
  int x_stride = 0;     // bytes; 16 more than a row needs: so eight rows lie in different banks
  int x_next = 0;       // bytes from one phase's x to the next one's
};

template <typename Weights>
struct DecodePiece {
  typename Weights::Part part;
  int first;  // row of W
  DecodeCut cut;
};

// Sums of a tile, by pairs of tokens: those of a pair lie row by row. With a pair's 20 places for its 16 rows neither
// those who store (8 rows of 4 pairs) nor those who read (16 rows of 2) meet in a bank.
inline constexpr int kDecodePairStride = 20;

// Of the sums of a pair of tokens, `token` and the next one, which may not be there.
template <typename Weights>
struct DecodeRest {
  typename Weights::Rest rest[2] = {};
  __device__ __forceinline__ void read(const Weights& weights, int output, int token, int tokens) {
#pragma unroll
    for (int i = 0; i < 2; ++i)
      if (token + i < tokens) rest[i] = weights.rest(output, token + i);
  }
  __device__ __forceinline__ void write(const Weights& weights, int output, int token, int tokens, float2 sum) const {
    if (token < tokens) weights.write(output, token, sum.x, rest[0]);
    if (token + 1 < tokens) weights.write(output, token + 1, sum.y, rest[1]);
  }
};

// Asks for `count` places of x, from `first` on: a row of each token. `thread` of kThreads. `wait`: for the kernel
// before this one, which writes x; where x is, W says without it.
template <int kThreads, typename Weights>
__device__ __forceinline__ void copy_decode_x(const Weights& weights, const DecodeLayout& layout,
                                              const typename Weights::Part& part, int first, int count,
                                              std::uint32_t start, int thread, bool wait) {
  constexpr int kBatch = 4;
  for (int place = 8 * thread; place < count; place += kBatch * 8 * kThreads) {
    int columns[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int here = place + i * 8 * kThreads;
      columns[i] = here < count ? weights.x_at(part, first + here) : -1;
    }
    if (wait) wait_for_previous();
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int here = place + i * 8 * kThreads;
      if (here >= count) break;
      const __nv_bfloat16* from = layout.x + max(columns[i], 0);
      std::uint32_t to = start + 2 * here;
      for (int token = 0; token < layout.tokens; ++token, from += layout.columns, to += layout.x_stride)
        copy_16_or_zeros(to, from, columns[i] >= 0);
    }
  }
  if (wait) wait_for_previous();  // those that had nothing to copy
  copies_commit();
}

// --- Kernel --------------------------------------------------------------------------------------------------------

// Two more warps bring x and take the sums, so that those that multiply never wait for anything but their own copies.
//
// The kernel may begin while the one before it in the stream still runs. Where W is settled, it fills its rings then;
// all else is left to the two warps, which wait.
inline constexpr int kDecodeHelpers = 2;

template <int kWarps, int kStages, int kTokenTiles, typename Weights>
__global__ void __launch_bounds__((kWarps + kDecodeHelpers) * kWarp, 1)
    decode_stream_kernel(const __grid_constant__ Weights weights, const __grid_constant__ DecodeLayout layout) {
  using Piece = DecodePiece<Weights>;
  constexpr int kTileSums = kTokenTiles * (kDecodeTileTokens / 2) * kDecodePairStride;
  extern __shared__ __align__(128) std::uint8_t shared[];  // rings; sums of two tiles in turn; of phases; pieces; x
  auto* const partial = reinterpret_cast<float2*>(shared + kWarps * kStages * Weights::kStageBytes);
  float2* const kept = partial + 2 * kWarps * kTileSums;
  const int pairs = (layout.tokens + 1) / 2;
  auto* const pieces = reinterpret_cast<Piece*>(kept + layout.kept_rows * pairs);
  const std::uint32_t x_start = (shared_address(pieces + layout.most_pieces) + 15u) & ~15u;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;

  let_next_begin();
  if (!layout.settled) wait_for_previous();
  const DecodeRows share =
      decode_share(static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x), layout.rows, layout.unit);
  const int piece_count = decode_pieces(share, layout.line);
  for (int i = static_cast<int>(threadIdx.x); i < piece_count; i += (kWarps + kDecodeHelpers) * kWarp) {
    const DecodeRows rows = decode_piece(share, i, layout.line);
    const typename Weights::Part part = weights.part(rows);
    const int steps = (part.inputs + Weights::kStepInputs - 1) / Weights::kStepInputs;
    pieces[i] = {part, rows.first, decode_cut(rows.rows, steps, layout.most_steps, kWarps)};
  }
  __syncthreads();
  const Piece* const end = pieces + piece_count;

  // Barriers: when x of the first phase is there; for each tile, when all sums of it are. Before the last one of a
  // phase comes x of the next phase; after it nobody reads this phase's any more.
  if (warp >= kWarps) {
    constexpr int kThreads = kDecodeHelpers * kWarp;
    static_assert(kThreads == 4 * kDecodeTileRows);
    const int thread = static_cast<int>(threadIdx.x) - kWarps * kWarp;
    const auto copy_x = [&](const Piece& piece, int phase, std::uint32_t start, bool wait) {
      copy_decode_x<kThreads>(weights, layout, piece.part, phase * piece.cut.phase_steps * Weights::kStepInputs,
                              piece.cut.steps_of(phase) * Weights::kStepInputs, start, thread, wait);
    };
    copy_x(*pieces, 0, x_start, true);
    copies_wait<0>();
    __syncthreads();
    int turn = 0;
    std::uint32_t x_other = layout.x_next;
    for (const Piece* piece = pieces; piece != end; ++piece) {
      for (int phase = 0; phase < piece->cut.phases; ++phase) {
        const bool last = phase + 1 == piece->cut.phases;
        if (!last)
          copy_x(*piece, phase + 1, x_start + x_other, false);
        else if (piece + 1 != end)
          copy_x(piece[1], 0, x_start + x_other, false);
        x_other = layout.x_next - x_other;
        for (int tile = 0; tile < piece->cut.tiles; ++tile, turn ^= 1) {
          const int row0 = tile * piece->cut.tile_rows, rows = piece->cut.rows_of(tile);
          DecodeRest<Weights> rest[kTokenTiles];  // a thread has that many sums of pairs
          if (last)
#pragma unroll
            for (int k = 0; k < kTokenTiles; ++k) {
              const int pair = thread / kDecodeTileRows + 4 * k, row = thread % kDecodeTileRows;
              if (row < rows) rest[k].read(weights, piece->first + row0 + row, 2 * pair, layout.tokens);
            }
          if (tile + 1 == piece->cut.tiles) copies_wait<0>();
          __syncthreads();
          // The next tile's sums come to the other place; those of the one after it, here, only after the next barrier.
#pragma unroll
          for (int k = 0; k < kTokenTiles; ++k) {
            const int pair = thread / kDecodeTileRows + 4 * k, row = thread % kDecodeTileRows;
            if (row >= rows || pair >= pairs) continue;
            const float2* from = partial + turn * kWarps * kTileSums + pair * kDecodePairStride + row;
            float2* const former = kept + pair * layout.kept_rows + row0 + row;  // this same thread's
            float2 sum = phase > 0 ? *former : make_float2(0.0f, 0.0f);
#pragma unroll
            for (int w = 0; w < kWarps; ++w) {
              const float2 more = from[w * kTileSums];
              sum.x += more.x;
              sum.y += more.y;
            }
            if (last)
              rest[k].write(weights, piece->first + row0 + row, 2 * pair, layout.tokens, sum);
            else
              *former = sum;
          }
        }
      }
    }
    return;
  }

  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::uint32_t ring = shared_address(shared) + warp * kStages * Weights::kStageBytes;
  // One group of copies each, whether there is anything left or not: so the groups count the steps.
  DecodeWalk<Piece> ahead(pieces, end, warp);
  const auto copy_ahead = [&](int stage) {
    if (!ahead.done()) {
      const DecodeCut& cut = ahead.piece->cut;
      weights.copy(ahead.piece->part, ahead.tile * cut.tile_rows, cut.rows_of(ahead.tile),
                   ahead.phase * cut.phase_steps + ahead.step, ring + stage * Weights::kStageBytes, lane);
      ahead.advance(warp, kWarps);
    }
    copies_commit();
  };
#pragma unroll 1
  for (int stage = 0; stage < kStages; ++stage) copy_ahead(stage);

  // Tokens that are not there are read as the last one; their sums go nowhere.
  std::uint32_t x_rows[kTokenTiles];
#pragma unroll
  for (int t = 0; t < kTokenTiles; ++t)
    x_rows[t] = x_start + min(t * kDecodeTileTokens + lane % 8, layout.tokens - 1) * layout.x_stride;
  int stage = 0, turn = 0;
  std::uint32_t x_now = 0;
  __syncthreads();
  for (const Piece* piece = pieces; piece != end; ++piece) {
    const typename Weights::Part part = piece->part;
    for (int phase = 0; phase < piece->cut.phases; ++phase) {
      const int first_step = phase * piece->cut.phase_steps, steps = piece->cut.steps_of(phase);
      const int tiles = piece->cut.tiles;
      for (int tile = 0; tile < tiles; ++tile, turn ^= 1) {
        float sums[kTokenTiles][4] = {};
        for (int step = warp; step < steps; step += kWarps) {
          copies_wait<kStages - 1>();
          __syncwarp();
          std::uint32_t x[kTokenTiles];
#pragma unroll
          for (int t = 0; t < kTokenTiles; ++t) x[t] = x_rows[t] + x_now + step * (2 * Weights::kStepInputs);
          typename Weights::template Operands<kTokenTiles> operands;
          weights.load(operands, ring + stage * Weights::kStageBytes, x, lane);
          __syncwarp();  // all have read the stage before it is written again
          copy_ahead(stage);
          weights.multiply(part, first_step + step, sums, operands);
          stage = stage + 1 == kStages ? 0 : stage + 1;
        }
        float2* const mine = partial + (turn * kWarps + warp) * kTileSums;
#pragma unroll
        for (int t = 0; t < kTokenTiles; ++t)
#pragma unroll
          for (int half = 0; half < 2; ++half)
            mine[(t * (kDecodeTileTokens / 2) + lane % 4) * kDecodePairStride + 8 * half + lane / 4] =
                make_float2(sums[t][2 * half], sums[t][2 * half + 1]);
        __syncthreads();
      }
      x_now = layout.x_next - x_now;
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

// `inputs`: of a row, as a rule; more come in phases. `rows_of_phases`: of a piece, for which sums are kept then.
template <int kWarps, int kStages, int kTokenTiles, typename Weights>
void launch_decode_stream(const Weights& weights, DecodeLayout layout, std::int64_t inputs, std::int64_t most_inputs,
                          int rows_of_phases, CUstream_st* stream) {
  const auto kernel = decode_stream_kernel<kWarps, kStages, kTokenTiles, Weights>;
  const DecodeGpu& gpu = DecodeGpu::current();
  static const bool allowed = [&] {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, gpu.shared_bytes));
    return true;
  }();
  static_cast<void>(allowed);
  const int shares = decode_shares(layout.rows, layout.unit, gpu.multiprocessors);
  layout.most_pieces = most_decode_pieces(shares, layout.rows, layout.unit, layout.line);
  const std::int64_t fixed =
      kWarps * kStages * Weights::kStageBytes +
      2 * kWarps * kTokenTiles * (kDecodeTileTokens / 2) * kDecodePairStride * std::int64_t{sizeof(float2)} +
      layout.most_pieces * std::int64_t{sizeof(DecodePiece<Weights>)} + 16;
  const auto whole = [](std::int64_t of_inputs) {
    const std::int64_t steps = (of_inputs + Weights::kStepInputs - 1) / Weights::kStepInputs;
    return (steps + kWarps - 1) / kWarps * kWarps;
  };
  const auto x_bytes = [&](std::int64_t steps) { return layout.tokens * (steps * Weights::kStepInputs * 2 + 16); };
  // x of one phase, or of two in turn.
  std::int64_t steps = whole(inputs), buffers = layout.most_pieces > 1 || steps < whole(most_inputs) ? 2 : 1;
  std::int64_t kept_bytes = 0;
  if (steps < whole(most_inputs) || fixed + buffers * x_bytes(steps) > gpu.shared_bytes) {
    buffers = 2;
    layout.kept_rows = (rows_of_phases + 1) / 2 * 2;
    kept_bytes = (layout.tokens + 1) / 2 * layout.kept_rows * std::int64_t{sizeof(float2)};
    const std::int64_t left = (gpu.shared_bytes - fixed - kept_bytes) / (buffers * layout.tokens) - 16;
    const std::int64_t fit = left / (Weights::kStepInputs * 2) / kWarps * kWarps;
    steps = std::max<std::int64_t>(std::min(steps, fit), kWarps);
  }
  layout.most_steps = static_cast<int>(steps);
  layout.x_stride = static_cast<int>(steps * Weights::kStepInputs * 2 + 16);
  layout.x_next = buffers == 2 ? static_cast<int>(x_bytes(steps)) : 0;
  const auto bytes = static_cast<std::size_t>(fixed + kept_bytes + buffers * x_bytes(steps));
  cudaLaunchAttribute overlap = {};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = static_cast<unsigned int>(shares);
  config.blockDim = (kWarps + kDecodeHelpers) * kWarp;
  config.dynamicSmemBytes = bytes;
  config.stream = stream;
  config.attrs = &overlap;
  config.numAttrs = gpu.major >= 9 ? 1 : 0;
  check(cudaLaunchKernelEx(&config, kernel, weights, layout));
}

}  // namespace filigree::cuda
