// The kernel of the forward product and of the input gradient on Hopper. Both are
//
//   out (T, M) = in (T, R) · op(W)      by lines of 128 outputs: line m sums over the kept blocks of its list
//
// forward: M = N, R = K, a line is a block row; input gradient: M = K, R = N, a line is a block column, and the block
// is read transposed. The product is computed as outᵀ: a block (128 outputs) is wgmma's A, 256 tokens of `in` are its
// B, so that both warpgroups issue m64n256 and read shared memory least: 80 KB a step of 64, and 48 KB written, in 1024
// cycles of the tensor cores, of 128 KB that shared memory can move. The epilogue transposes on its way to shared
// memory.
//
// Bytes from L2 a step: 32 KB of `in`, and 8 KB of values, which a cluster of two token tiles shares: 102 operations a
// byte. Clusters take tiles in groups of kGroup token tiles x all lines, so that about 66 clusters work on kGroup x 16
// tiles at a time and read the same slices of `in` and the same blocks at about the same time.
#pragma once

#include "kernels/block/block_activation.cuh"
#include "kernels/block/block_format.h"
#include "kernels/block/sm90_pipeline.cuh"

namespace filigree::sm90 {

enum class Direction : std::uint8_t { forward, input_gradient };

struct LinesProblem {
  const std::int32_t* line_start;  // (lines + 1)
  const BlockEntry* entries;       // (blocks)
  const float* bias;               // (M), optional
  std::int32_t lines;
  std::int32_t outputs;        // M
  std::int32_t cluster_tiles;  // of kSm90Cluster token tiles
  bool pre_activation;         // forward: written to its own map
  BlockActivation activation;  // forward: of the product. Input gradient: the one whose derivative is a factor
  bool joined;                 // read through its map: the residual or former dx, or the derivative's argument
};

inline constexpr int kGroup = 4;
inline constexpr int kClusterTokens = kSm90Cluster * kSm90TokenTile;

// The epilogue's staging: per warpgroup two buffers of 64 tokens x 64 outputs.
inline constexpr int kStagingTokens = 64;
inline constexpr int kStagingBytes = kStagingTokens * 128;
inline constexpr int kLinesSharedBytes = kStages * kStageBytes + 4 * kStagingBytes + static_cast<int>(sizeof(Barriers));

struct LinesTile {
  int line;
  int token;  // first token of this thread block
};

__device__ inline LinesTile lines_tile(const LinesProblem& problem, int index, int rank) {
  const int group = index / (kGroup * problem.lines);
  const int within = index - group * kGroup * problem.lines;
  const int width = min(kGroup, problem.cluster_tiles - group * kGroup);
  const int tile = group * kGroup + within % width;
  return {within / width, (tile * kSm90Cluster + rank) * kSm90TokenTile};
}

__device__ inline int lines_blocks(const LinesProblem& problem, const LinesTile& tile) {
  return problem.line_start[tile.line + 1] - problem.line_start[tile.line];
}

// What becomes of a warpgroup's half of a tile: 64 outputs x 256 tokens, in passes of 64 tokens through two staging
// buffers. `take` rounds the accumulators to bf16 pairs; the passes then run one a step, under the products of the next
// tile, so that the tensor cores do not wait for them. With a pre-activation, even passes store it and odd ones store
// the output.
template <Direction direction>
class LinesEpilogue {
 public:
  // `staging` and `barriers` are those of both warpgroups.
  __device__ LinesEpilogue(const LinesProblem& problem, const CUtensorMap& output_map,
                           const CUtensorMap& pre_activation_map, const CUtensorMap& joined_map, std::uint32_t staging,
                           std::uint32_t barriers)
      : problem_(problem),
        output_map_(output_map),
        pre_activation_map_(pre_activation_map),
        joined_map_(joined_map),
        staging_(staging),
        barriers_(barriers),
        next_(passes()) {}

  // Asks for the biases of the tile that is about to be computed.
  __device__ void prepare(const LinesTile& tile) {
    const int thread = static_cast<int>(threadIdx.x) % 128;
    for (int half = 0; half < 2; ++half) {  // the thread's two rows of outᵀ
      const int output = first_output(tile) + thread / 32 * 16 + thread % 32 / 4 + 8 * half;
      bias_[half] = problem_.bias != nullptr && output < problem_.outputs ? problem_.bias[output] : 0.0f;
    }
  }

  // All passes of the tile before must be done.
  __device__ void take(const float (&d)[kAccumulators], const LinesTile& tile) {
#pragma unroll
    for (int i = 0; i < kAccumulators / 2; ++i)
      pairs_[i] = rounded_pair(d[2 * i] + bias_[i % 2], d[2 * i + 1] + bias_[i % 2]);
    output_ = first_output(tile);
    token_ = tile.token;
    next_ = 0;
    if (threadIdx.x % 128 == 0) load_joined(0);
  }

  // The next pass, if any is left.
  __device__ void step() {
    if (next_ == passes()) return;
    switch (chunk_of(next_)) {  // registers are addressed by constants alone
      case 0:
        run<0>();
        break;
      case 1:
        run<1>();
        break;
      case 2:
        run<2>();
        break;
      case 3:
        run<3>();
        break;
    }
    ++next_;
  }
  __device__ void flush() {
    while (next_ < passes()) step();
  }

 private:
  static constexpr int kChunks = kSm90TokenTile / kStagingTokens;

  // Computed where they are needed, to save registers: accumulators and pairs take 192 of 240.
  __device__ static int warpgroup() {
    return static_cast<int>(threadIdx.x) / 128 - 1;
  }
  __device__ int passes() const {
    return problem_.pre_activation ? 2 * kChunks : kChunks;
  }
  __device__ std::uint32_t buffer_of(int pass) const {
    return staging_ + (2 * warpgroup() + pass % 2) * kStagingBytes;
  }
  __device__ std::uint32_t barrier_of(int pass) const {
    return barriers_ + (2 * warpgroup() + pass % 2) * 8;
  }
  __device__ int first_output(const LinesTile& tile) const {
    return tile.line * kSm90Block + warpgroup() * 64;
  }
  __device__ int chunk_of(int pass) const {
    return problem_.pre_activation ? pass / 2 : pass;
  }
  __device__ bool is_output(int pass) const {
    return !problem_.pre_activation || pass % 2 == 1;
  }

  // One thread; the pass's buffer must be free.
  __device__ void load_joined(int pass) const {
    if (!problem_.joined || pass >= passes() || !is_output(pass)) return;
    const std::uint32_t barrier = barrier_of(pass);
    barrier_arrive_expecting(barrier, kStagingBytes);
    load_box(buffer_of(pass), joined_map_, output_, token_ + chunk_of(pass) * kStagingTokens, barrier);
  }

  __device__ float combined(float product, float other) const {
    if (direction == Direction::input_gradient && problem_.activation != BlockActivation::none)
      return product * activation_derivative(problem_.activation, other);
    return product + other;
  }

  template <int chunk>
  __device__ void run() {
    const int thread = static_cast<int>(threadIdx.x) % 128, lane = thread % 32;
    const bool output = is_output(next_);
    const bool join = output && problem_.joined;
    if (join) {
      barrier_wait(barrier_of(next_), parity_ >> (next_ % 2) & 1);
      parity_ ^= 1u << (next_ % 2);
    }
    // The lane's row (a token) of the first four tiles; 16-byte pieces are swizzled as the map's boxes are.
    const int piece = (2 * (thread / 32) + lane / 8 % 2) ^ (lane % 8);
    const std::uint32_t row = buffer_of(next_) + (lane % 8 + lane / 16 * 8) * 128 + piece * 16;
#pragma unroll
    for (int part = 0; part < kStagingTokens / 16; ++part) {
      std::uint32_t tiles[4];  // tokens 8 · (i / 2) .. + 8, outputs 8 · (i % 2) .. + 8
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        tiles[i] = pairs_[chunk * 16 + part * 4 + i];
        pin(tiles[i]);
      }
      if (direction == Direction::forward && output && problem_.activation != BlockActivation::none) {
#pragma unroll
        for (std::uint32_t& pair : tiles)
          pair =
              rounded_pair(activated(problem_.activation, low_of(pair)), activated(problem_.activation, high_of(pair)));
      }
      if (join) {
        std::uint32_t others[4];
        load_transposed(row + part * 16 * 128, others);
#pragma unroll
        for (int i = 0; i < 4; ++i)
          tiles[i] = rounded_pair(combined(low_of(tiles[i]), low_of(others[i])),
                                  combined(high_of(tiles[i]), high_of(others[i])));
      }
      store_transposed(row + part * 16 * 128, tiles);
    }
    fence_for_copies();
    // Once all threads are past the barrier, the other buffer is free: its store, a step ago, has read it.
    if (thread == 0) stores_wait_read<0>();
    warpgroup_sync(1 + warpgroup());
    if (thread == 0) {
      store_box(output ? output_map_ : pre_activation_map_, output_, token_ + chunk * kStagingTokens, buffer_of(next_));
      stores_commit();
      load_joined(next_ + 1);
    }
  }

  const LinesProblem& problem_;
  const CUtensorMap& output_map_;
  const CUtensorMap& pre_activation_map_;
  const CUtensorMap& joined_map_;
  std::uint32_t staging_;   // two buffers a warpgroup
  std::uint32_t barriers_;  // and their barriers, for what is joined
  int next_;
  std::uint32_t parity_ = 0;  // of the two barriers, a bit each
  std::uint32_t pairs_[kAccumulators / 2];
  float bias_[2];
  int output_ = 0;
  int token_ = 0;
};

// One elected thread: fills stages for all tiles of this thread block.
template <Direction direction>
__device__ inline void load_lines(const LinesProblem& problem, const CUtensorMap& input_map,
                                  const CUtensorMap& values_map, std::uint32_t stages, Barriers& barriers, int cluster,
                                  int clusters, int rank) {
  Ring ring;
  const int tiles = problem.lines * problem.cluster_tiles;
  for (int index = cluster; index < tiles; index += clusters) {
    const LinesTile tile = lines_tile(problem, index, rank);
    const int end = problem.line_start[tile.line + 1];
    for (int at = problem.line_start[tile.line]; at < end; ++at) {
      const BlockEntry entry = problem.entries[at];
#pragma unroll
      for (int half = 0; half < kSm90Block / kSm90Step; ++half) {
        const std::uint32_t stage = stages + ring.stage * kStageBytes;
        const std::uint32_t full = shared_address(&barriers.full[ring.stage]);
        barrier_wait(shared_address(&barriers.empty[ring.stage]), ring.parity ^ 1);
        barrier_arrive_expecting(full, kStageBytes);
        // A: rows of the block (forward: outputs, its columns half · 64 ..; transposed: the reduction, all columns in
        // slabs).
        const int share = rank * kShareRows;
        const int x = direction == Direction::forward ? half * kSm90Step : share / 64 * 64;
        const int y = direction == Direction::forward ? share : half * kSm90Step + share % 64;
        load_box_to_cluster(stage + rank * kShareA, values_map, x, entry.block * kSm90Block + y, full, kAllRanks);
        load_box(stage + kStageA, input_map, entry.other * kSm90Block + half * kSm90Step, tile.token, full);
        ring.advance();
      }
    }
  }
}

template <Direction direction>
__global__ void __launch_bounds__(kThreads, 1)
    block_lines_kernel(const __grid_constant__ CUtensorMap input_map, const __grid_constant__ CUtensorMap values_map,
                       const __grid_constant__ CUtensorMap output_map,
                       const __grid_constant__ CUtensorMap pre_activation_map,
                       const __grid_constant__ CUtensorMap joined_map, const LinesProblem problem) {
  extern __shared__ __align__(1024) std::uint8_t shared[];
  const std::uint32_t stages = shared_address(shared);
  const std::uint32_t staging = stages + kStages * kStageBytes;
  Barriers& barriers = *reinterpret_cast<Barriers*>(shared + kStages * kStageBytes + 4 * kStagingBytes);
  const int rank = cluster_rank();
  const int cluster = static_cast<int>(blockIdx.x) / kSm90Cluster,
            clusters = static_cast<int>(gridDim.x) / kSm90Cluster;
  const int warpgroup = static_cast<int>(threadIdx.x) / 128 - 1;

  if (threadIdx.x == 0) {
    prefetch_map(input_map);
    prefetch_map(values_map);
    prefetch_map(output_map);
    init_barriers(barriers);
  }
  cluster_sync();

  if (warpgroup < 0) {
    give_registers<kLoaderRegisters>();
    if (threadIdx.x == 0)
      load_lines<direction>(problem, input_map, values_map, stages, barriers, cluster, clusters, rank);
  } else {
    take_registers<kMultiplierRegisters>();
    LinesEpilogue<direction> epilogue(problem, output_map, pre_activation_map, joined_map, staging,
                                      shared_address(barriers.staging));
    Ring ring;
    const int tiles = problem.lines * problem.cluster_tiles;
    LinesTile tile = lines_tile(problem, cluster, rank);  // there are at least as many tiles as clusters
    int blocks = lines_blocks(problem, tile);
    for (int index = cluster;; index += clusters) {  // the last round finishes the last tile
      const LinesTile next = lines_tile(problem, min(index + clusters, tiles - 1), rank);
      const int next_blocks = lines_blocks(problem, next);  // asked for early: it comes while this tile is multiplied
      const bool more = index < tiles;
      epilogue.prepare(tile);
      float d[kAccumulators];
      if (blocks == 0)  // an input that no output reads
        for (float& value : d) value = 0.0f;
      multiply<direction == Direction::forward ? Major::reduction : Major::product, Major::reduction>(
          d, ring, more ? blocks * (kSm90Block / kSm90Step) : 0, stages, barriers, warpgroup, [&] { epilogue.step(); });
      epilogue.flush();
      if (!more) break;
      epilogue.take(d, tile);
      tile = next;
      blocks = next_blocks;
    }
    if (threadIdx.x % 128 == 0) stores_wait_read<0>();
  }
  __syncwarp();
  cluster_sync();  // no thread block leaves while another may still write to its shared memory
}

}  // namespace filigree::sm90
