// Kept blocks of dW = dyᵀ · x on Hopper. T is the reduction; a thread block computes two kept blocks of one block row
// at once, 128 outputs x 2 · 128 inputs, a cluster four, which share the row's slice of dy: 40 KB a step of 64 tokens
// from L2, 102 operations a byte. Both operands are read transposed from shared memory (MN-major), as TMA wrote them.
//
// Tiles left over after every cluster has had equally many are cut along T into equal pieces (block_plan.h); their
// partial sums go to the workspace in the accumulators' own order, and a second kernel adds them, pieces in ascending
// order.
#include <cuda_bf16.h>

#include "kernels/block/sm90_block.h"
#include "kernels/block/sm90_launch.h"
#include "kernels/block/sm90_pipeline.cuh"
#include "kernels/block/sm90_tensor_map.h"

namespace filigree::sm90 {

namespace {

struct GradientProblem {
  BlockPlan plan;
  const BlockGradientTile* tiles;
  const BlockEntry* row_entries;
  void* gradient;     // (blocks, 128, 128) fp32 or bf16
  float4* workspace;  // (slots, cluster rank, warpgroup, kAccumulators / 4, 128 threads)
  bool bf16_gradient;
  bool accumulate;
};

constexpr int kGradientSharedBytes = kStages * kStageBytes + static_cast<int>(sizeof(Barriers));
constexpr int kQuads = kAccumulators / 4;  // of accumulators: columns c, c + 1 of rows r and r + 8
constexpr int kReduceThreads = 128;
constexpr int kReduceQuads = 4;  // of a thread of the second kernel

__device__ std::int64_t partial_index(int slot, int rank, int warpgroup, int quad, int thread) {
  return (((std::int64_t{slot} * kSm90Cluster + rank) * 2 + warpgroup) * kQuads + quad) * 128 + thread;
}

__device__ void write_pair(const GradientProblem& problem, std::int64_t at, float2 value) {
  if (problem.bf16_gradient) {
    auto* to = reinterpret_cast<__nv_bfloat162*>(static_cast<__nv_bfloat16*>(problem.gradient) + at);
    if (problem.accumulate) {
      const float2 before = __bfloat1622float2(*to);
      value = {before.x + value.x, before.y + value.y};
    }
    *to = __float22bfloat162_rn(value);
  } else {
    auto* to = reinterpret_cast<float2*>(static_cast<float*>(problem.gradient) + at);
    if (problem.accumulate) value = {to->x + value.x, to->y + value.y};
    *to = value;
  }
}

// One quad of a tile's sums to its place in the gradient.
__device__ void write_quad(const GradientProblem& problem, const BlockGradientTile& tile, int rank, int warpgroup,
                           int quad, int thread, float4 sums) {
  const int place = 2 * rank + quad / (kQuads / 2);  // of the block in the tile
  if (place >= tile.count) return;
  const int row = warpgroup * 64 + thread / 32 * 16 + thread % 32 / 4;
  const int column = quad % (kQuads / 2) * 8 + thread % 4 * 2;
  const std::int64_t at = (std::int64_t{tile.first + place} * kSm90Block + row) * kSm90Block + column;
  write_pair(problem, at, {sums.x, sums.y});
  write_pair(problem, at + 8 * kSm90Block, {sums.z, sums.w});
}

// --- Kernels
// ------------------------------------------------------------------------------------------------------------

__device__ void load_gradient(const GradientProblem& problem, const CUtensorMap& dy_map, const CUtensorMap& x_map,
                              std::uint32_t stages, Barriers& barriers, int cluster, int rank) {
  Ring ring;
  GradientSegment segment = gradient_segment(problem.plan, cluster, 0);
  for (int index = 1; segment.tile >= 0; ++index) {
    const BlockGradientTile tile = problem.tiles[segment.tile];
    const int share = rank * kShareRows;
    const int output = tile.row * kSm90Block + share / 64 * 64;
    int input[2];  // a missing block's place is filled with the tile's first: its products are not written
    for (int i = 0; i < 2; ++i) {
      const int place = 2 * rank + i < tile.count ? 2 * rank + i : 0;
      input[i] = problem.row_entries[tile.first + place].other * kSm90Block;
    }
    for (int step = segment.begin; step < segment.end; ++step) {
      const std::uint32_t stage = stages + ring.stage * kStageBytes;
      const std::uint32_t full = shared_address(&barriers.full[ring.stage]);
      const int token = step * kSm90Step;
      barrier_wait(shared_address(&barriers.empty[ring.stage]), ring.parity ^ 1);
      barrier_arrive_expecting(full, kStageBytes);
      load_box_to_cluster(stage + rank * kShareA, dy_map, output, token + share % 64, full, kAllRanks);
#pragma unroll
      for (int slab = 0; slab < 4; ++slab)
        load_box(stage + kStageA + slab * kSlab, x_map, input[slab / 2] + slab % 2 * 64, token, full);
      ring.advance();
    }
    segment = gradient_segment(problem.plan, cluster, index);
  }
}

__global__ void __launch_bounds__(kThreads, 1)
    block_weight_gradient_kernel(const __grid_constant__ CUtensorMap dy_map, const __grid_constant__ CUtensorMap x_map,
                                 const GradientProblem problem) {
  extern __shared__ __align__(1024) std::uint8_t shared[];
  const std::uint32_t stages = shared_address(shared);
  Barriers& barriers = *reinterpret_cast<Barriers*>(shared + kStages * kStageBytes);
  const int rank = cluster_rank();
  const int cluster = static_cast<int>(blockIdx.x) / kSm90Cluster;
  const int warpgroup = static_cast<int>(threadIdx.x) / 128 - 1;

  if (threadIdx.x == 0) {
    prefetch_map(dy_map);
    prefetch_map(x_map);
    init_barriers(barriers);
  }
  cluster_sync();

  if (warpgroup < 0) {
    give_registers<kLoaderRegisters>();
    if (threadIdx.x == 0) load_gradient(problem, dy_map, x_map, stages, barriers, cluster, rank);
  } else {
    take_registers<kMultiplierRegisters>();
    const int thread = static_cast<int>(threadIdx.x) % 128;
    Ring ring;
    GradientSegment segment = gradient_segment(problem.plan, cluster, 0);
    for (int index = 1; segment.tile >= 0; ++index) {
      float d[kAccumulators];
      multiply<Major::product, Major::product>(d, ring, segment.end - segment.begin, stages, barriers, warpgroup,
                                               [] {});
      if (segment.slot < 0) {
        const BlockGradientTile tile = problem.tiles[segment.tile];
#pragma unroll
        for (int quad = 0; quad < kQuads; ++quad)
          write_quad(problem, tile, rank, warpgroup, quad, thread,
                     {d[4 * quad], d[4 * quad + 1], d[4 * quad + 2], d[4 * quad + 3]});
      } else {
#pragma unroll
        for (int quad = 0; quad < kQuads; ++quad)
          problem.workspace[partial_index(segment.slot, rank, warpgroup, quad, thread)] = {
              d[4 * quad], d[4 * quad + 1], d[4 * quad + 2], d[4 * quad + 3]};
      }
      segment = gradient_segment(problem.plan, cluster, index);
    }
  }
  __syncwarp();
  cluster_sync();
}

// Grid (split tiles, kSm90Cluster · 2 · kQuads / kReduceQuads): each thread adds the pieces of kReduceQuads quads.
__global__ void __launch_bounds__(kReduceThreads) add_pieces_kernel(const GradientProblem problem) {
  const BlockPlan& plan = problem.plan;
  const int split = static_cast<int>(blockIdx.x);
  const int begin = split * plan.tile_steps, end = begin + plan.tile_steps;
  const int part = static_cast<int>(blockIdx.y) % (kQuads / kReduceQuads);
  const int owner = static_cast<int>(blockIdx.y) / (kQuads / kReduceQuads);
  const int thread = static_cast<int>(threadIdx.x);
  float4 sums[kReduceQuads] = {};
  for (int cluster = begin / plan.split_steps; cluster * plan.split_steps < end; ++cluster) {
    // The tile is the cluster's second when its piece begins in the tile before.
    const int slot = 2 * cluster + (cluster * plan.split_steps < begin ? 1 : 0);
#pragma unroll
    for (int i = 0; i < kReduceQuads; ++i) {
      const float4 add = problem.workspace[partial_index(slot, owner / 2, owner % 2, part * kReduceQuads + i, thread)];
      sums[i] = {sums[i].x + add.x, sums[i].y + add.y, sums[i].z + add.z, sums[i].w + add.w};
    }
  }
  const BlockGradientTile tile = problem.tiles[plan.whole_tiles + split];
#pragma unroll
  for (int i = 0; i < kReduceQuads; ++i)
    write_quad(problem, tile, owner / 2, owner % 2, part * kReduceQuads + i, thread, sums[i]);
}

}  // namespace

// --- Launchers
// ----------------------------------------------------------------------------------------------------------

void block_weight_gradient(const BlockWeightGradientArgs& args, const BlockPlan& plan, CUstream_st* stream) {
  const CUtensorMap dy = tensor_map(args.dy, args.tokens, args.grid.rows, kShareRows);
  const CUtensorMap x = tensor_map(args.x, args.tokens, args.grid.columns, kSm90Step);
  const GradientProblem problem = {
      .plan = plan,
      .tiles = args.lists.gradient_tiles,
      .row_entries = args.lists.row_entries,
      .gradient = args.gradient,
      .workspace = static_cast<float4*>(args.workspace),
      .bf16_gradient = args.gradient_type == DType::bf16,
      .accumulate = args.accumulate,
  };
  launch_clusters(block_weight_gradient_kernel, plan.clusters, kThreads, kGradientSharedBytes, stream, dy, x, problem);
  if (plan.split_tiles == 0) return;
  const dim3 grid(static_cast<unsigned>(plan.split_tiles), kSm90Cluster * 2 * kQuads / kReduceQuads);
  add_pieces_kernel<<<grid, kReduceThreads, 0, stream>>>(problem);
  check(cudaGetLastError());
}

}  // namespace filigree::sm90
