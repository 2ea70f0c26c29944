#include <numeric>

#include "kernels/cuda_common.cuh"
#include "kernels/nm/nm_mask_cuda.cuh"
#include "kernels/nm/nm_pack.h"
#include "kernels/nm/nm_prune_24_cuda.h"

// SLoPe's second pruning, (W^{R,C})ᵀ from W^R, on a GPU; runs each step for every sparse weight. 2:4 in bf16 has a
// kernel of its own (nm_prune_24_cuda.cu). The kernel here serves every pattern, type and range of rows: a thread takes
// one column and, of its rows, a unit of whole groups and whole mask bytes, so that no two threads write one byte.
// Neighbouring threads read neighbouring columns; what a thread writes is one piece of an output row.

namespace filigree::cuda {
namespace {

constexpr int kWide = 32, kHigh = 8;  // threads of a block: columns, units

struct PruneArgs {
  void* out_values = nullptr;          // (K, N·keep/of)
  std::uint8_t* out_mask = nullptr;    // (K, N/8)
  const void* values = nullptr;        // (N, K·keep/of)
  const std::uint8_t* mask = nullptr;  // (N, K/8)
  std::int64_t rows = 0, columns = 0;  // N, K
  std::int64_t row_begin = 0, row_end = 0;
  std::int64_t unit = 0;  // rows: a multiple of the group and of 8
  Pattern pattern;
  bool reselect = true;
};

// Replaces mask bits [begin, begin + count) of a row.
__device__ void store_bits(std::uint8_t* row, std::int64_t begin, int count, unsigned bits) {
  for (int done = 0; done < count;) {
    std::uint8_t& byte = row[(begin + done) / 8];
    const int shift = static_cast<int>((begin + done) % 8);
    const int here = min(8 - shift, count - done);
    const unsigned places = ((1u << here) - 1) << shift;
    byte = static_cast<std::uint8_t>((byte & ~places) | (bits >> done << shift & places));
    done += here;
  }
}

// kOf: the pattern's group, so that a group's rows stay in registers; 0: any, up to 32.
template <int kOf, typename To, typename From>
__global__ void __launch_bounds__(kWide* kHigh) prune_kernel(PruneArgs args) {
  constexpr int kMost = kOf > 0 ? kOf : 32;
  const int of = kOf > 0 ? kOf : args.pattern.of, keep = args.pattern.keep;
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kWide + threadIdx.x;
  const std::int64_t unit = args.row_begin / args.unit + static_cast<std::int64_t>(blockIdx.y) * kHigh + threadIdx.y;
  if (column >= args.columns) return;
  const std::int64_t first = max(unit * args.unit, args.row_begin), last = min((unit + 1) * args.unit, args.row_end);
  const std::int64_t mask_row = (args.columns + 7) / 8, out_mask_row = (args.rows + 7) / 8;
  const std::int64_t kept_row = args.columns / of * keep, out_kept_row = args.rows / of * keep;
  const std::int64_t column_group = column / of;
  const auto* values = static_cast<const From*>(args.values) + column_group * keep;
  std::uint8_t* out_bits = args.out_mask + column * out_mask_row;
  auto* out_values = static_cast<To*>(args.out_values) + column * out_kept_row;

  for (std::int64_t row = first; row < last; row += of) {
    float value[kMost];
    int key[kMost];  // the magnitude's bits, which have the order of the magnitudes; -1 where nothing is kept
#pragma unroll
    for (int i = 0; i < of; ++i) {
      const std::uint8_t* bits = args.mask + (row + i) * mask_row;
      const bool kept = is_kept(bits, column);
      value[i] = kept ? to_float(values[(row + i) * kept_row + count_kept(bits, column_group * of, column)]) : 0.0f;
      key[i] = kept ? __float_as_int(value[i]) & 0x7fffffff : -1;
    }
    unsigned chosen = 0;
#pragma unroll
    for (int i = 0; i < of; ++i) {
      if (!args.reselect) {
        chosen |= static_cast<unsigned>(is_kept(out_bits, row + i)) << i;
        continue;
      }
      int beaten = 0;  // by larger ones, and by equal ones above
#pragma unroll
      for (int j = 0; j < of; ++j) beaten += j < i ? key[j] >= key[i] : key[j] > key[i];
      if (beaten < keep) chosen |= 1u << i;
    }
    To* to = out_values + row / of * keep;
#pragma unroll
    for (int i = 0; i < of; ++i)
      if (chosen >> i & 1) *to++ = from_float<To>(value[i]);
    if (args.reselect) store_bits(out_bits, row, of, chosen);
  }
}

}  // namespace

void nm_double_prune(Device& device, const NmMatrix& out, const NmMatrix& forward, bool reselect,
                     std::int64_t row_begin, std::int64_t row_end) {
  if (row_begin == row_end || forward.columns == 0) return;
  if (reselect && takes_prune_24(out, forward, row_begin, row_end)) {
    prune_24(device, out, forward, row_begin, row_end);
    return;
  }
  const int of = forward.pattern.of;
  const PruneArgs args{.out_values = out.values.data,
                       .out_mask = out.mask.as<std::uint8_t>(),
                       .values = forward.values.data,
                       .mask = forward.mask.as<std::uint8_t>(),
                       .rows = forward.rows,
                       .columns = forward.columns,
                       .row_begin = row_begin,
                       .row_end = row_end,
                       .unit = 32 % of == 0 ? 32 : std::lcm(of, 8),
                       .pattern = forward.pattern,
                       .reselect = reselect};
  const std::int64_t units = (row_end + args.unit - 1) / args.unit - row_begin / args.unit;
  const dim3 grid(blocks_for(forward.columns, kWide), blocks_for(units, kHigh));
  with_device_type(out.values.dtype, [&]<typename To>() {
    with_device_type(forward.values.dtype, [&]<typename From>() {
      const auto kernel = of == 4   ? prune_kernel<4, To, From>
                          : of == 8 ? prune_kernel<8, To, From>
                                    : prune_kernel<0, To, From>;
      kernel<<<grid, dim3(kWide, kHigh), 0, device.stream()>>>(args);
    });
  });
  check_launch();
}

}  // namespace filigree::cuda
