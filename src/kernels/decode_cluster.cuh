// decode_stream.cuh for more than 8 tokens from compute capability 9.0 on: x is large then, 160 KB for 16 tokens and
// 5120 inputs, and every multiprocessor would read all of it. Here a cluster of thread blocks has a share of the rows
// together (decode_cluster.h). Each of them takes a part of the inputs, and so reads that part of x alone; in the end
// they read each other's sums, and add them in order.
//
// As a thread block has many rows now, its warps need not share them: a warp takes whole tiles, and keeps their sums
// in shared memory. It waits for others only where x changes, and in the end.
#pragma once

#include "kernels/decode_cluster.h"
#include "kernels/decode_stream.cuh"

namespace filigree::cuda {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
__device__ __forceinline__ int cluster_rank() {
  std::uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}
// All threads of the cluster; what they wrote to shared memory is there then.
__device__ __forceinline__ void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.release;\n\tbarrier.cluster.wait.acquire;" ::: "memory");
}
// From the same place of another thread block's shared memory.
__device__ __forceinline__ float2 load_from_rank(std::uint32_t address, int rank) {
  std::uint32_t there;
  float2 value;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];" : "=f"(value.x), "=f"(value.y) : "r"(there) : "memory");
  return value;
}
#else
// Not launched there.
__device__ inline int cluster_rank() {
  return 0;
}
__device__ inline void cluster_barrier() {}
__device__ inline float2 load_from_rank(std::uint32_t, int) {
  return {};
}
#endif

template <typename Weights>
struct DecodeClusterPiece {
  typename Weights::Part part;
  int first;  // row of W
  DecodeClusterCut cut;
};

inline constexpr int kDecodeMostRanks = 8;

template <int kWarps, int kStages, int kTokenTiles, typename Weights>
__global__ void __launch_bounds__((kWarps + kDecodeHelpers) * kWarp, 1)
    decode_cluster_kernel(const __grid_constant__ Weights weights, const __grid_constant__ DecodeLayout layout,
                          const int ranks) {
  using Piece = DecodeClusterPiece<Weights>;
  constexpr int kThreads = (kWarps + kDecodeHelpers) * kWarp, kPairs = kTokenTiles * kDecodeTileTokens / 2;
  extern __shared__ __align__(128) std::uint8_t shared[];  // rings; sums, row by row for a pair of tokens; pieces; x
  auto* const kept = reinterpret_cast<float2*>(shared + kWarps * kStages * Weights::kStageBytes);
  auto* const pieces = reinterpret_cast<Piece*>(kept + layout.kept_rows * kPairs);
  const std::uint32_t x_start = (shared_address(pieces + layout.most_pieces) + 15u) & ~15u;
  const int warp = static_cast<int>(threadIdx.x) / kWarp, rank = cluster_rank();

  let_next_begin();
  if (!layout.settled) wait_for_previous();
  const DecodeRows share =
      decode_share(static_cast<int>(blockIdx.x) / ranks, static_cast<int>(gridDim.x) / ranks, layout.rows, layout.unit);
  const int piece_count = decode_pieces(share, layout.line);
  for (int i = static_cast<int>(threadIdx.x); i < piece_count; i += kThreads) {
    const DecodeRows rows = decode_piece(share, i, layout.line);
    const typename Weights::Part part = weights.part(rows);
    const int steps = (part.inputs + Weights::kStepInputs - 1) / Weights::kStepInputs;
    pieces[i] = {part, rows.first, decode_cluster_cut(rows.rows, steps, rank, ranks, layout.most_steps, kWarps)};
  }
  __syncthreads();
  const Piece* const end = pieces + piece_count;

  // A barrier for each phase: x of it is there, and nobody reads that of the one before it any more.
  if (warp >= kWarps) {
    constexpr int kHelpers = kDecodeHelpers * kWarp;
    const int thread = static_cast<int>(threadIdx.x) - kWarps * kWarp;
    const auto copy_x = [&](const Piece& piece, int phase, std::uint32_t start, bool wait) {
      const int first = piece.cut.first_step + phase * piece.cut.phase_steps;
      copy_decode_x<kHelpers>(weights, layout, piece.part, first * Weights::kStepInputs,
                              piece.cut.steps_of(phase) * Weights::kStepInputs, start, thread, wait);
    };
    copy_x(*pieces, 0, x_start, true);
    std::uint32_t x_other = layout.x_next;
    for (const Piece* piece = pieces; piece != end; ++piece) {
      for (int phase = 0; phase < piece->cut.phases; ++phase) {
        copies_wait<0>();
        __syncthreads();
        if (phase + 1 < piece->cut.phases)
          copy_x(*piece, phase + 1, x_start + x_other, false);
        else if (piece + 1 != end)
          copy_x(piece[1], 0, x_start + x_other, false);
        x_other = layout.x_next - x_other;
      }
    }
  } else {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const std::uint32_t ring = shared_address(shared) + warp * kStages * Weights::kStageBytes;
    // One group of copies each, whether there is anything left or not: so the groups count the steps.
    DecodeClusterWalk<Piece> ahead(pieces, end, warp, kWarps);
    const auto copy_ahead = [&](int stage) {
      if (!ahead.done()) {
        const DecodeClusterCut& cut = ahead.piece->cut;
        weights.copy(ahead.piece->part, ahead.tile * cut.tile_rows, cut.rows_of(ahead.tile),
                     cut.first_step + ahead.phase * cut.phase_steps + ahead.step, ring + stage * Weights::kStageBytes,
                     lane);
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
    int stage = 0;
    std::uint32_t x_now = 0;
    for (const Piece* piece = pieces; piece != end; ++piece) {
      const typename Weights::Part part = piece->part;
      const int tiles = piece->cut.tiles, tile_rows = piece->cut.tile_rows;
      for (int phase = 0; phase < piece->cut.phases; ++phase) {
        const int first_step = piece->cut.first_step + phase * piece->cut.phase_steps;
        const int steps = piece->cut.steps_of(phase);
        __syncthreads();
        for (int tile = warp; tile < tiles; tile += kWarps) {
          float sums[kTokenTiles][4] = {};
          // Rows that a tile lacks are the next one's, another warp's.
          const int rows = piece->cut.rows_of(tile);
          float2* const mine =
              kept + lane % 4 * layout.kept_rows + (piece->first - share.first) + tile * tile_rows + lane / 4;
#pragma unroll
          for (int half = 0; half < 2; ++half)
            if (phase > 0 && lane / 4 + 8 * half < rows)
#pragma unroll
              for (int t = 0; t < kTokenTiles; ++t) {
                const float2 before = mine[t * (kDecodeTileTokens / 2) * layout.kept_rows + 8 * half];
                sums[t][2 * half] = before.x;
                sums[t][2 * half + 1] = before.y;
              }
#pragma unroll 1
          for (int step = 0; step < steps; ++step) {
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
#pragma unroll
          for (int half = 0; half < 2; ++half)
            if (lane / 4 + 8 * half < rows)
#pragma unroll
              for (int t = 0; t < kTokenTiles; ++t)
                mine[t * (kDecodeTileTokens / 2) * layout.kept_rows + 8 * half] =
                    make_float2(sums[t][2 * half], sums[t][2 * half + 1]);
        }
        x_now = layout.x_next - x_now;
      }
    }
    wait_for_previous();  // which may read y, and may write what joins it
  }

  // Each thread block takes some of the rows, each thread a few pairs of tokens of them at once.
  constexpr int kItems = 4;
  const DecodeRows mine = {share.rows * rank / ranks, share.rows * (rank + 1) / ranks - share.rows * rank / ranks};
  const int items = mine.rows * ((layout.tokens + 1) / 2);
  const std::uint32_t sums_start = shared_address(kept);
  for (int first = static_cast<int>(threadIdx.x); first - static_cast<int>(threadIdx.x) < max(items, 1);
       first += kItems * kThreads) {
    DecodeRest<Weights> rest[kItems];
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
      const int i = first + k * kThreads;
      if (i < items) rest[k].read(weights, share.first + mine.first + i % mine.rows, i / mine.rows * 2, layout.tokens);
    }
    if (first == static_cast<int>(threadIdx.x)) cluster_barrier();
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
      const int i = first + k * kThreads;
      if (i >= items) continue;
      const int pair = i / mine.rows, row = mine.first + i % mine.rows;
      const std::uint32_t from = sums_start + (pair * layout.kept_rows + row) * static_cast<int>(sizeof(float2));
      float2 parts[kDecodeMostRanks];
#pragma unroll
      for (int r = 0; r < kDecodeMostRanks; ++r)
        if (r < ranks) parts[r] = load_from_rank(from, r);
      float2 sum = parts[0];
#pragma unroll
      for (int r = 1; r < kDecodeMostRanks; ++r)
        if (r < ranks) {
          sum.x += parts[r].x;
          sum.y += parts[r].y;
        }
      rest[k].write(weights, share.first + row, 2 * pair, layout.tokens, sum);
    }
  }
  __syncwarp();
  cluster_barrier();  // until all have read this one's
}

// --- Launcher ------------------------------------------------------------------------------------------------------

// Products take clusters for many tokens, where there are any; filigree_cuda_bench compares the others.
enum class DecodeClusters : std::uint8_t { never, many_tokens, always };

// False: nothing was launched, for clusters or shared memory do not suffice. Arguments as those of
// launch_decode_stream.
template <int kWarps, int kStages, int kTokenTiles, typename Weights>
bool launch_decode_cluster(const Weights& weights, DecodeLayout layout, std::int64_t inputs, std::int64_t most_inputs,
                           CUstream_st* stream) {
  const auto kernel = decode_cluster_kernel<kWarps, kStages, kTokenTiles, Weights>;
  const DecodeGpu& gpu = DecodeGpu::current();
  if (gpu.major < 9) return false;
  struct Launch {
    cudaLaunchAttribute attributes[2] = {};
    cudaLaunchConfig_t config = {};
    Launch(int ranks, int clusters, std::int64_t bytes) {
      attributes[0].id = cudaLaunchAttributeClusterDimension;
      attributes[0].val.clusterDim = {static_cast<unsigned int>(ranks), 1, 1};
      attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
      attributes[1].val.programmaticStreamSerializationAllowed = 1;
      config.gridDim = static_cast<unsigned int>(clusters * ranks);
      config.blockDim = (kWarps + kDecodeHelpers) * kWarp;
      config.dynamicSmemBytes = static_cast<std::size_t>(bytes);
      config.attrs = attributes;
      config.numAttrs = 1;
    }
  };
  struct Active {
    int clusters[3] = {};
  };
  static const Active active = [&] {
    Active made;
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, gpu.shared_bytes));
    for (int i = 0; i < 3; ++i) {
      const Launch launch(2 << i, gpu.multiprocessors / (2 << i), gpu.shared_bytes);
      check(cudaOccupancyMaxActiveClusters(&made.clusters[i], kernel, &launch.config));
    }
    return made;
  }();
  const DecodeClusterChoice choice = choose_decode_cluster(
      {.rows = layout.rows,
       .inputs = inputs,
       .unit = layout.unit,
       .tokens = layout.tokens,
       .warps = kWarps,
       .row_bytes = static_cast<double>(inputs) * Weights::kStageBytes / (kDecodeTileRows * Weights::kStepInputs)},
      active.clusters);
  if (choice.ranks == 0) return false;
  // Rows of 4 pairs of tokens lie in different banks: 4 more than a multiple of 16.
  layout.kept_rows = (most_decode_rows(choice.shares, layout.rows, layout.unit) + 11) / 16 * 16 + 4;
  layout.most_pieces = most_decode_pieces(choice.shares, layout.rows, layout.unit, layout.line);
  const std::int64_t fixed = kWarps * kStages * Weights::kStageBytes +
                             layout.kept_rows * kTokenTiles * (kDecodeTileTokens / 2) * std::int64_t{sizeof(float2)} +
                             layout.most_pieces * std::int64_t{sizeof(DecodeClusterPiece<Weights>)} + 16;
  const auto steps_of = [&](std::int64_t of_inputs) {
    const std::int64_t steps = (of_inputs + Weights::kStepInputs - 1) / Weights::kStepInputs;
    return (steps + choice.ranks - 1) / choice.ranks;
  };
  const auto x_bytes = [&](std::int64_t steps) { return layout.tokens * (steps * Weights::kStepInputs * 2 + 16); };
  std::int64_t steps = steps_of(inputs), buffers = layout.most_pieces > 1 || steps < steps_of(most_inputs) ? 2 : 1;
  if (fixed + buffers * x_bytes(steps) > gpu.shared_bytes) {
    buffers = 2;
    const std::int64_t left = (gpu.shared_bytes - fixed) / (buffers * layout.tokens) - 16;
    steps = left / (Weights::kStepInputs * 2);
    if (steps < 1) return false;
  }
  layout.most_steps = static_cast<int>(steps);
  layout.x_stride = static_cast<int>(steps * Weights::kStepInputs * 2 + 16);
  layout.x_next = buffers == 2 ? static_cast<int>(x_bytes(steps)) : 0;
  Launch launch(choice.ranks, choice.shares, fixed + buffers * x_bytes(steps));
  launch.config.stream = stream;
  launch.config.numAttrs = 2;
  check(cudaLaunchKernelEx(&launch.config, kernel, weights, layout, choice.ranks));
  return true;
}

// With clusters or without.
template <int kWarps, int kStages, typename Weights>
void launch_decode(const Weights& weights, const DecodeLayout& layout, std::int64_t inputs, std::int64_t most_inputs,
                   int rows_of_phases, DecodeClusters clusters, CUstream_st* stream) {
  if (layout.tokens > kDecodeTileTokens) {
    if (clusters != DecodeClusters::never &&
        launch_decode_cluster<kWarps, kStages, 2>(weights, layout, inputs, most_inputs, stream))
      return;
    return launch_decode_stream<kWarps, kDecodeStagesOfMany, 2>(weights, layout, inputs, most_inputs, rows_of_phases,
                                                                stream);
  }
  if (clusters == DecodeClusters::always &&
      launch_decode_cluster<kWarps, kStages, 1>(weights, layout, inputs, most_inputs, stream))
    return;
  launch_decode_stream<kWarps, kStages, 1>(weights, layout, inputs, most_inputs, rows_of_phases, stream);
}

}  // namespace filigree::cuda
