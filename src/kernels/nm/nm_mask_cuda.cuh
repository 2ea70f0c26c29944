// Reading bit masks (nm_format.h) in CUDA kernels.
#pragma once

#include <cstdint>

#include "core/pattern.h"

namespace filigree::cuda {

// How many of the entries [begin, end) of a row are kept.
__device__ __forceinline__ int count_kept(const std::uint8_t* mask, std::int64_t begin, std::int64_t end) {
  int kept = 0;
  while (begin < end) {
    const int shift = static_cast<int>(begin % 8);
    const int here = min(8 - shift, static_cast<int>(end - begin));
    kept += __popc(static_cast<unsigned>(mask[begin / 8]) >> shift & ((1u << here) - 1));
    begin += here;
  }
  return kept;
}

// How many entries of a row are kept before `column`: the place of its value.
__device__ __forceinline__ std::int64_t kept_before(const std::uint8_t* mask, std::int64_t column, Pattern pattern) {
  const std::int64_t group = column / pattern.of;
  return group * pattern.keep + count_kept(mask, group * pattern.of, column);
}

__device__ __forceinline__ bool is_kept(const std::uint8_t* mask, std::int64_t column) {
  return mask[column / 8] >> (column % 8) & 1;
}

}  // namespace filigree::cuda
