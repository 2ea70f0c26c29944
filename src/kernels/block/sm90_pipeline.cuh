// What the Hopper kernels share: the shared-memory layout of a ring of stages, and the hand-over between the thread
// that fills them and the two warpgroups that multiply.
//
// A step of the reduction is 64 deep. Its stage holds A, 128 rows of the product (16 KB), and B, 256 columns (32 KB).
// All thread blocks of a cluster need the same A: each loads its share and sends it to all. Warpgroup 0 loads,
// warpgroups 1 and 2 own 64 of the 128 rows each and all 256 columns.
#pragma once

#include "kernels/block/block_plan.h"
#include "kernels/block/sm90_device.cuh"
#include "kernels/block/sm90_wgmma.cuh"

namespace filigree::sm90 {

inline constexpr int kThreads = 384;
inline constexpr int kStages = 4;
inline constexpr int kSlab = 64 * 128;     // bytes of 64 rows of 64 elements
inline constexpr int kStageA = 2 * kSlab;  // 128 x 64
inline constexpr int kStageB = 4 * kSlab;  // 256 x 64
inline constexpr int kStageBytes = kStageA + kStageB;
inline constexpr int kShareA = kStageA / kSm90Cluster;  // what one thread block loads of A
inline constexpr int kShareRows = 128 / kSm90Cluster;   // its rows of 64 elements
inline constexpr std::uint16_t kAllRanks = (1 << kSm90Cluster) - 1;

// Registers a thread. The warpgroups trade what the launch gave them, 168 each: asking for more would wait for ever.
inline constexpr int kLaunchRegisters = 168;
inline constexpr int kLoaderRegisters = 24;
inline constexpr int kMultiplierRegisters = 240;
static_assert(128 * (kLoaderRegisters + 2 * kMultiplierRegisters) <= kThreads * kLaunchRegisters);

struct Barriers {
  std::uint64_t full[kStages];   // the stage's bytes have landed
  std::uint64_t empty[kStages];  // every multiplying warp of the cluster is done with the stage
  std::uint64_t staging[4];      // the epilogue's own copies
};

// Position in the ring; the parity flips with each round.
struct Ring {
  int stage = 0;
  std::uint32_t parity = 0;

  __device__ void advance() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

__device__ inline void init_barriers(Barriers& barriers) {
  for (int stage = 0; stage < kStages; ++stage) {
    barrier_init(shared_address(&barriers.full[stage]), 1);
    barrier_init(shared_address(&barriers.empty[stage]), 8 * kSm90Cluster);  // 8 multiplying warps a thread block
  }
  for (std::uint64_t& barrier : barriers.staging) barrier_init(shared_address(&barrier), 1);
  barrier_init_fence();
}

// d = the product over `steps` steps of the ring; unchanged when there are none. A stage is handed back as soon as its
// products are done. `meanwhile` is called once a step, while the tensor cores are busy with it: not to touch d.
template <Major a_major, Major b_major, typename Meanwhile>
__device__ inline void multiply(float (&d)[kAccumulators], Ring& ring, int steps, std::uint32_t stages,
                                Barriers& barriers, int warpgroup, Meanwhile&& meanwhile) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int previous = 0;
  for (int step = 0; step < steps; ++step) {
    const std::uint32_t a_address = stages + ring.stage * kStageBytes + warpgroup * kSlab;
    const std::uint64_t a = operand(a_address, kSlab);
    const std::uint64_t b = operand(stages + ring.stage * kStageBytes + kStageA, kSlab);
    barrier_wait(shared_address(&barriers.full[ring.stage]), ring.parity);
    products_begin();
#pragma unroll
    for (int part = 0; part < 4; ++part)
      product<a_major, b_major>(d, a + part * kPart<a_major>, b + part * kPart<b_major>, step > 0 || part > 0);
    products_commit();
    if (step > 0) {
      products_wait<1>();  // the step before is done, this one keeps the tensor cores busy
      if (lane < kSm90Cluster) barrier_arrive_at(shared_address(&barriers.empty[previous]), lane);
    }
    meanwhile();
    previous = ring.stage;
    ring.advance();
  }
  products_wait<0>();
  products_fence(d);
  if (steps > 0 && lane < kSm90Cluster) barrier_arrive_at(shared_address(&barriers.empty[previous]), lane);
}

}  // namespace filigree::sm90
