// What the selection kernels share. A warp takes a group of 1,024 entries: each lane holds one word of its bits, and
// the warp then walks the 32 words, a lane an entry, so that every access is to neighbours. No address needs an
// alignment.
//
// Lists travel with the launch, kArrays arrays at a time: they are short, and nothing has to be copied first.
#pragma once

#include <algorithm>
#include <limits>

#include "kernels/cuda_common.cuh"
#include "kernels/selection/selection.h"

namespace filigree::cuda {

inline constexpr int kArrays = 24;
inline constexpr int kSelectionThreads = 256;
inline constexpr int kWarpsOfBlock = kSelectionThreads / kWarp;
inline constexpr int kWordsOfGroup = static_cast<int>(kSelectionGroup) / 32;
static_assert(kWordsOfGroup == kWarp, "a lane holds a word");

// Some arrays of a list, with the number of groups before each.
template <typename Args>
struct Batch {
  Args args[kArrays];
  std::int32_t first_group[kArrays + 1];
  int count;
};

__device__ __forceinline__ int lane_of_thread() {
  return static_cast<int>(threadIdx.x) % kWarp;
}

// A warp's group: which array it belongs to, and where in it.
struct Place {
  int array;
  std::int64_t group;  // of the array
};
// False for warps past the end.
template <typename Args>
__device__ __forceinline__ bool find_place(Place& place, const Batch<Args>& batch) {
  const auto group =
      static_cast<std::int32_t>(blockIdx.x) * kWarpsOfBlock + static_cast<std::int32_t>(threadIdx.x) / kWarp;
  if (group >= batch.first_group[batch.count]) return false;
  int array = 0;
  while (group >= batch.first_group[array + 1]) ++array;
  place = {array, group - batch.first_group[array]};
  return true;
}

// Sum over the lanes below this one.
__device__ __forceinline__ int lanes_before(int value) {
  int sum = value;
  for (int offset = 1; offset < kWarp; offset *= 2) {
    const int lower = __shfl_up_sync(0xffffffffu, sum, offset);
    if (lane_of_thread() >= offset) sum += lower;
  }
  return sum - value;
}

// Calls body(entry, whether it is chosen, its place among the packed ones) for the entries of the warp's group that
// exist; every lane takes part in each call's shuffles, not in its body.
template <typename Body>
__device__ __forceinline__ void for_group(const Selection& chosen, std::int64_t group, const Body& body) {
  const int lane = lane_of_thread();
  const std::uint32_t own = chosen.bits[group * kWordsOfGroup + lane];
  const int own_before = chosen.before[group] + lanes_before(__popc(own));
#pragma unroll 4
  for (int word = 0; word < kWordsOfGroup; ++word) {
    const std::uint32_t bits = __shfl_sync(0xffffffffu, own, word);
    const int before = __shfl_sync(0xffffffffu, own_before, word);
    const std::int64_t i = group * kSelectionGroup + word * 32 + lane;
    if (i < chosen.count) body(i, (bits >> lane & 1u) != 0, before + __popc(bits & ((1u << lane) - 1u)));
  }
}

// Calls launch(batch, blocks) for the arrays, kArrays at a time. count_of(args): entries.
template <typename Args, typename Count, typename Launch>
void for_batches(std::span<const Args> arrays, const Count& count_of, const Launch& launch) {
  for (std::size_t first = 0; first < arrays.size(); first += kArrays) {
    Batch<Args> batch{};
    std::int64_t groups = 0;
    for (std::size_t index = first; index < std::min(arrays.size(), first + kArrays); ++index) {
      batch.args[batch.count] = arrays[index];
      batch.first_group[batch.count++] = static_cast<std::int32_t>(groups);
      groups += selection_groups(count_of(arrays[index]));
    }
    require(groups <= std::numeric_limits<std::int32_t>::max(), "more entries than one launch takes");
    batch.first_group[batch.count] = static_cast<std::int32_t>(groups);
    if (groups > 0) launch(batch, blocks_for(groups, kWarpsOfBlock));
    check_launch();
  }
}

}  // namespace filigree::cuda
