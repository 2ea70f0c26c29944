#include <algorithm>

#include "kernels/cuda_common.cuh"
#include "kernels/nm/nm_mask_cuda.cuh"
#include "kernels/nm/nm_pack.h"

// Dense to compressed and back, bound by memory. Rows that are whole mask bytes make the arrays flat: a thread takes
// one mask byte after the other, eight entries, and where every byte keeps four of them it loads and stores whole
// vectors. Other widths go entry by entry.
//
// Floors on an H200 (4.3 TB/s), a weight of a 2:4 matrix: expanding bf16 to bf16 moves 1 + 1/8 + 2 bytes, 0.73 ps
// (2048 x 8192: 12 us); compressing an fp32 gradient moves 4 + 1/8 + 2, 1.4 ps (24 us), and 2 more to accumulate.

namespace filigree::cuda {
namespace {

constexpr int kThreads = 256;

template <typename T>
struct alignas(4 * sizeof(T)) Four {
  T values[4];
};
template <typename T>
struct alignas(16) Eight {
  T values[8];
};
template <typename Vector, typename T>
__device__ __forceinline__ Vector load_vector(const T* from) {
  return *reinterpret_cast<const Vector*>(from);
}
template <typename Vector, typename T>
__device__ __forceinline__ void store_vector(T* to, const Vector& vector) {
  *reinterpret_cast<Vector*>(to) = vector;
}

__device__ __forceinline__ std::int64_t first_index() {
  return static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
}
__device__ __forceinline__ std::int64_t index_stride() {
  return static_cast<std::int64_t>(gridDim.x) * kThreads;
}

// What a launch needs beside the arrays. per_byte: entries that each mask byte keeps; 0 where it varies.
struct Extent {
  std::int64_t count = 0;  // of mask bytes, or of entries
  std::int64_t columns = 0;
  Pattern pattern;
  int per_byte = 0;
};

template <bool kFour, typename To, typename From>
__global__ void __launch_bounds__(kThreads) expand_kernel(To* __restrict__ dense,           // (rows, columns)
                                                          const From* __restrict__ values,  // (rows, kept)
                                                          const std::uint8_t* __restrict__ mask, Extent extent) {
  for (std::int64_t i = first_index(); i < extent.count; i += index_stride()) {
    const unsigned bits = mask[i];
    Eight<To> out;
    if constexpr (kFour) {
      auto next = load_vector<Four<From>>(values + 4 * i);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const bool kept = bits >> j & 1;
        out.values[j] = from_float<To>(kept ? to_float(next.values[0]) : 0.0f);
#pragma unroll
        for (int k = 0; k < 3; ++k) next.values[k] = kept ? next.values[k + 1] : next.values[k];
      }
    } else {
      const std::int64_t first = extent.per_byte > 0 ? i * extent.per_byte : kept_before(mask, 8 * i, extent.pattern);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const bool kept = bits >> j & 1;
        out.values[j] = from_float<To>(kept ? to_float(values[first + __popc(bits & ((1u << j) - 1))]) : 0.0f);
      }
    }
    store_vector(dense + 8 * i, out);
  }
}

template <typename To, typename From>
__global__ void __launch_bounds__(kThreads)
    expand_entries_kernel(To* __restrict__ dense, const From* __restrict__ values,
                          const std::uint8_t* __restrict__ mask, Extent extent) {
  const std::int64_t kept_row = extent.columns / extent.pattern.of * extent.pattern.keep;
  for (std::int64_t i = first_index(); i < extent.count; i += index_stride()) {
    const std::int64_t row = i / extent.columns, column = i % extent.columns;
    const std::uint8_t* bits = mask + row * ((extent.columns + 7) / 8);
    dense[i] = from_float<To>(
        is_kept(bits, column) ? to_float(values[row * kept_row + kept_before(bits, column, extent.pattern)]) : 0.0f);
  }
}

template <bool kFour, typename To, typename From>
__global__ void __launch_bounds__(kThreads)
    compress_kernel(To* __restrict__ values,         // (rows, kept)
                    const From* __restrict__ dense,  // (rows, columns)
                    const std::uint8_t* __restrict__ mask, Extent extent, bool accumulate) {
  for (std::int64_t i = first_index(); i < extent.count; i += index_stride()) {
    const unsigned bits = mask[i];
    const auto in = load_vector<Eight<From>>(dense + 8 * i);
    if constexpr (kFour) {
      float kept[4] = {};
#pragma unroll
      for (int j = 7; j >= 0; --j) {  // from the right, so that the last one put in is the first
        const bool keep = bits >> j & 1;
#pragma unroll
        for (int k = 3; k > 0; --k) kept[k] = keep ? kept[k - 1] : kept[k];
        kept[0] = keep ? to_float(in.values[j]) : kept[0];
      }
      if (accumulate) {
        const auto before = load_vector<Four<To>>(values + 4 * i);
#pragma unroll
        for (int k = 0; k < 4; ++k) kept[k] += to_float(before.values[k]);
      }
      Four<To> out;
#pragma unroll
      for (int k = 0; k < 4; ++k) out.values[k] = from_float<To>(kept[k]);
      store_vector(values + 4 * i, out);
    } else {
      std::int64_t place = extent.per_byte > 0 ? i * extent.per_byte : kept_before(mask, 8 * i, extent.pattern);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        if ((bits >> j & 1) == 0) continue;
        const float value = to_float(in.values[j]);
        values[place] = from_float<To>(accumulate ? value + to_float(values[place]) : value);
        ++place;
      }
    }
  }
}

template <typename To, typename From>
__global__ void __launch_bounds__(kThreads)
    compress_entries_kernel(To* __restrict__ values, const From* __restrict__ dense,
                            const std::uint8_t* __restrict__ mask, Extent extent, bool accumulate) {
  const std::int64_t kept_row = extent.columns / extent.pattern.of * extent.pattern.keep;
  for (std::int64_t i = first_index(); i < extent.count; i += index_stride()) {
    const std::int64_t row = i / extent.columns, column = i % extent.columns;
    const std::uint8_t* bits = mask + row * ((extent.columns + 7) / 8);
    if (!is_kept(bits, column)) continue;
    To* to = values + row * kept_row + kept_before(bits, column, extent.pattern);
    const float value = to_float(dense[i]);
    *to = from_float<To>(accumulate ? value + to_float(*to) : value);
  }
}

unsigned int blocks_of(const Device& device, std::int64_t count) {
  return std::min<unsigned int>(blocks_for(count, kThreads), 32u * device.gpu().multiprocessors);
}

bool aligned(const void* data) {
  return reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
}

// Calls bytes(extent, four) where mask bytes can be walked, entries(extent) otherwise.
template <typename Bytes, typename Entries>
void walk(const NmMatrix& matrix, const Tensor& dense, const Bytes& bytes, const Entries& entries) {
  Extent extent{.count = matrix.rows * matrix.columns, .columns = matrix.columns, .pattern = matrix.pattern};
  if (extent.count == 0) return;
  if (matrix.columns % 8 != 0 || !aligned(dense.data) || !aligned(matrix.values.data)) {
    entries(extent);
  } else {
    extent.count /= 8;
    if (8 % matrix.pattern.of == 0) extent.per_byte = 8 / matrix.pattern.of * matrix.pattern.keep;
    bytes(extent, extent.per_byte == 4);
  }
  check_launch();
}

// Calls body.operator()<To, From>().
template <typename Body>
void with_types(const Tensor& to, const Tensor& from, const Body& body) {
  with_device_type(to.dtype, [&]<typename To>() {
    with_device_type(from.dtype, [&]<typename From>() { body.template operator()<To, From>(); });
  });
}

}  // namespace

void nm_compress(Device& device, const NmMatrix& out, const Tensor& dense, bool accumulate) {
  const auto* mask = out.mask.as<std::uint8_t>();
  with_types(out.values, dense, [&]<typename To, typename From>() {
    auto* to = static_cast<To*>(out.values.data);
    const auto* from = static_cast<const From*>(dense.data);
    walk(
        out, dense,
        [&](const Extent& extent, bool four) {
          const auto kernel = four ? compress_kernel<true, To, From> : compress_kernel<false, To, From>;
          kernel<<<blocks_of(device, extent.count), kThreads, 0, device.stream()>>>(to, from, mask, extent, accumulate);
        },
        [&](const Extent& extent) {
          compress_entries_kernel<<<blocks_of(device, extent.count), kThreads, 0, device.stream()>>>(
              to, from, mask, extent, accumulate);
        });
  });
}

void nm_expand(Device& device, const Tensor& dense, const NmMatrix& in) {
  const auto* mask = in.mask.as<std::uint8_t>();
  with_types(dense, in.values, [&]<typename To, typename From>() {
    auto* to = static_cast<To*>(dense.data);
    const auto* from = static_cast<const From*>(in.values.data);
    walk(
        in, dense,
        [&](const Extent& extent, bool four) {
          const auto kernel = four ? expand_kernel<true, To, From> : expand_kernel<false, To, From>;
          kernel<<<blocks_of(device, extent.count), kThreads, 0, device.stream()>>>(to, from, mask, extent);
        },
        [&](const Extent& extent) {
          expand_entries_kernel<<<blocks_of(device, extent.count), kThreads, 0, device.stream()>>>(to, from, mask,
                                                                                                   extent);
        });
  });
}

}  // namespace filigree::cuda
