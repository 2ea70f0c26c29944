// What the decoding kernels ask of a warp: copies to shared memory that nobody waits for until they are needed,
// matrices out of shared memory, and products of tensor cores. One PTX instruction each, of compute capability 8.0 and
// later.
#pragma once

#include <cstdint>

#include "kernels/decode_shares.h"

namespace filigree::cuda {

__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

// --- Copies from device memory; a thread waits for its own ---------------------------------------------------------

// 16 bytes past the first cache. Both addresses are multiples of 16.
__device__ __forceinline__ void copy_16(std::uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
// Zeros instead, where nothing is `there`; `from` is not read then.
__device__ __forceinline__ void copy_16_or_zeros(std::uint32_t to, const void* from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0) : "memory");
}
__device__ __forceinline__ void copy_8(std::uint32_t to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(to), "l"(from) : "memory");
}
// What was asked for since the last call, be it nothing, is one group.
__device__ __forceinline__ void copies_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Until at most the newest `kPending` groups are on their way.
template <int kPending>
__device__ __forceinline__ void copies_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// --- Matrices ------------------------------------------------------------------------------------------------------

// Four matrices of 8 rows of 16 bytes; `row` is the address of row l % 8 of matrix l / 8 in lane l, which gets the
// four bytes l % 4 of row l / 4 of each.
__device__ __forceinline__ void load_matrices(std::uint32_t (&matrices)[4], std::uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
               : "r"(row)
               : "memory");
}

__device__ __forceinline__ std::uint32_t load_word(std::uint32_t from) {
  std::uint32_t word;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(from) : "memory");
  return word;
}

// A tile of W in shared memory: 16 rows of 128 bytes, in eight pieces of 16, of which piece p of row r lies at p ^ r %
// 8: so the same piece of eight rows lies in different banks.
inline constexpr int kDecodeTileBytes = kDecodeTileRows * 128;

// Asks for the first `count` rows of a tile, `stride` bytes apart: this lane's piece of every fourth of them.
__device__ __forceinline__ void copy_tile(std::uint32_t to, const void* from, int stride, int count, int lane) {
  const int row = lane / 8, piece = lane % 8;
  const auto* mine = static_cast<const std::uint8_t*>(from) + (row * stride + 16 * piece);
  const std::uint32_t even = to + row * 128 + ((piece ^ row) << 4), odd = even ^ 4 << 4;
#pragma unroll
  for (int i = 0; i < kDecodeTileRows / 4; ++i)
    if (row + 4 * i < count) copy_16((i % 2 == 0 ? even : odd) + i * 4 * 128, mine + i * 4 * stride);
}
// For load_matrices, where `piece` is that of the lane's matrix: rows 0 to 7 of a tile for matrices 0 and 2, the others
// for matrices 1 and 3.
__device__ __forceinline__ std::uint32_t tile_row(std::uint32_t tile, int piece, int lane) {
  return tile + lane % 16 * 128 + ((piece ^ lane % 8) << 4);
}

// Sums of 16 rows of W and 8 tokens: lane 4g + t holds (row g, tokens 2t and 2t + 1), then the same of row g + 8.
// Operands are four matrices of W (rows 0 to 7 and 8 to 15 of its first 16 bytes, then of its second), and two or four
// of x.

// sums (16, 8) += W (16, 16) · xᵀ (16, 8)
__device__ __forceinline__ void multiply(float (&sums)[4], const std::uint32_t (&w)[4], std::uint32_t x0,
                                         std::uint32_t x1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "r"(x0), "r"(x1));
}

// sums (16, 8) += W (16, 32) · xᵀ (32, 8), W 2:4. The metadata of 16 inputs of row g, in the lower half, and of row
// g + 8 are taken from lane 4g + 2 kPair, those of the next 16 from the lane after it.
template <int kPair>
__device__ __forceinline__ void multiply_24(float (&sums)[4], const std::uint32_t (&w)[4], const std::uint32_t (&x)[4],
                                            std::uint32_t metadata) {
  asm("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9, %10, %11}, {%0, %1, %2, %3}, %12, %13;"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(metadata),
        "n"(kPair));
}

}  // namespace filigree::cuda
