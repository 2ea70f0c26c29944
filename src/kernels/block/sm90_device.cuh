// Hopper's asynchronous machinery in plain functions: shared-memory barriers, bulk tensor copies (TMA), clusters. Each
// wraps one PTX instruction. Included by sm_90a code only.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace filigree::sm90 {

__device__ inline std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

// --- Barriers in shared memory: complete when `arrivals` threads have arrived and all expected bytes have landed
// --------

__device__ inline void barrier_init(std::uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// Makes initialised barriers visible to the cluster and to bulk copies.
__device__ inline void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ inline void barrier_arrive_expecting(std::uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// Arrives at the barrier of the same address in thread block `rank` of the cluster. Relaxed: it says that products have
// read shared memory, and publishes no writes; a release to the cluster would cost a fence of all memory a step.
__device__ inline void barrier_arrive_at(std::uint32_t barrier, int rank) {
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [remote];\n"
      "}\n" ::"r"(barrier),
      "r"(rank)
      : "memory");
}
// Waits until the phase of parity `parity` is complete; a fresh barrier counts as complete in parity 1.
__device__ inline void barrier_wait(std::uint32_t barrier, std::uint32_t parity) {
  std::uint32_t done = 0;
  while (!done) {
    asm volatile(
        "{\n"
        ".reg .pred complete;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 complete, [%1], %2;\n"
        "selp.u32 %0, 1, 0, complete;\n"
        "}\n"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  }
}

// --- Bulk tensor copies: one thread issues, boxes of two-dimensional tensors, coordinates innermost first
// ---------------

__device__ inline void prefetch_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}
// Elements outside the tensor arrive as zeros and count as bytes.
__device__ inline void load_box(std::uint32_t to, const CUtensorMap& map, int x, int y, std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
          to),
      "l"(&map), "r"(x), "r"(y), "r"(barrier)
      : "memory");
}
// To the same address, and counted by the barrier of the same address, in every thread block of `ranks` (a bit each).
__device__ inline void load_box_to_cluster(std::uint32_t to, const CUtensorMap& map, int x, int y,
                                           std::uint32_t barrier, std::uint16_t ranks) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
      " [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
      "l"(&map), "r"(x), "r"(y), "r"(barrier), "h"(ranks)
      : "memory");
}
// Elements outside the tensor are left out.
__device__ inline void store_box(const CUtensorMap& map, int x, int y, std::uint32_t from) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map), "r"(x),
               "r"(y), "r"(from)
               : "memory");
}
__device__ inline void stores_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Waits until all but the last `pending` groups of this thread's stores have read their shared memory.
template <int pending>
__device__ inline void stores_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}
// Makes this thread's writes to shared memory visible to bulk copies that are issued after the next barrier.
__device__ inline void fence_for_copies() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// --- Threads
// ------------------------------------------------------------------------------------------------------------

// Among the 128 threads of one warpgroup; names 1 .. 15.
__device__ inline void warpgroup_sync(int name) {
  asm volatile("bar.sync %0, 128;" ::"r"(name) : "memory");
}

__device__ inline void cluster_sync() {
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;\n" ::
          : "memory");
}
__device__ inline int cluster_rank() {
  std::uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}

template <int registers>
__device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}
template <int registers>
__device__ inline void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}

// --- Pairs of bf16 in one register ---------------------------------------------------------------------------------

// By PTX, so that the compiler does not keep the halves apart in two registers; volatile, so that it rounds here and
// does not keep the operands until the pair is used.
__device__ inline std::uint32_t rounded_pair(float low, float high) {
  std::uint32_t pair;
  asm volatile("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
// Keeps what is computed from the pair at this place: it must not be hoisted out of a loop, where it would fill
// registers.
__device__ inline void pin(std::uint32_t& pair) {
  asm volatile("" : "+r"(pair));
}
__device__ inline float low_of(std::uint32_t pair) {
  return __uint_as_float(pair << 16);
}
__device__ inline float high_of(std::uint32_t pair) {
  return __uint_as_float(pair & 0xffff0000u);
}

// --- Transposing 8 x 8 tiles of bf16 between registers and shared memory
// ------------------------------------------------

// Four tiles; lane l holds rows l / 4, columns 2 · (l % 4) and the next of each tile in one register. `row` is the
// address of tile l / 8's column l % 8, which lies in 16 contiguous bytes.
__device__ inline void store_transposed(std::uint32_t row, const std::uint32_t (&tiles)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(tiles[0]),
               "r"(tiles[1]), "r"(tiles[2]), "r"(tiles[3])
               : "memory");
}
__device__ inline void load_transposed(std::uint32_t row, std::uint32_t (&tiles)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(tiles[0]), "=r"(tiles[1]), "=r"(tiles[2]), "=r"(tiles[3])
               : "r"(row)
               : "memory");
}

}  // namespace filigree::sm90
