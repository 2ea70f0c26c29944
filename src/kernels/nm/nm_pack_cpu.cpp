// Dense to compressed and back. Bound by memory: a strip of 64 columns passes through registers and L1.
#include <algorithm>
#include <cstddef>

#include "core/parallel.h"
#include "kernels/nm/nm_pack.h"
#include "kernels/nm/nm_vectors.h"

namespace filigree {
namespace {

constexpr std::int64_t kStrip = 64;

void check(const char* name, const NmMatrix& matrix, const Tensor& dense, Shape shape) {
  const Pattern pattern = matrix.pattern;
  require(pattern.keep >= 1 && pattern.keep < pattern.of && pattern.of <= 32 && matrix.columns % pattern.of == 0,
          std::string(name) + ": pattern " + to_string(pattern) + " does not fit " + std::to_string(matrix.columns) +
              " columns");
  require(matrix.values.shape == Shape{matrix.rows, kept_columns(matrix.columns, pattern)} &&
              matrix.mask.shape == Shape{matrix.rows, mask_bytes(matrix.columns)} && matrix.mask.dtype == DType::u8,
          std::string(name) + ": values or mask have another shape than the matrix says");
  require(dense.shape == shape,
          std::string(name) + ": dense is " + to_string(dense.shape) + ", not " + to_string(shape));
}

template <typename To, typename From>
void convert_strip(To* to, const From* from, int count) {
  for (int i = 0; i < count; ++i) to[i] = To(static_cast<float>(from[i]));
}

NmVectors best_vectors() {
  return nm_target(cpu_features()).vectors;
}

}  // namespace

void nm_compress(Device& device, const NmMatrix& out, const Tensor& dense, bool accumulate) {
  check("nm_compress", out, dense, {out.rows, out.columns});
  if constexpr (kBuiltWithCuda)
    if (device.is_cuda()) return cuda::nm_compress(device, out, dense, accumulate);
  const NmPackKernels& kernels = nm_pack_kernels(best_vectors());
  const auto* mask = out.mask.as<std::uint8_t>();
  const std::int64_t kept = kept_columns(out.columns, out.pattern);
  with_compute_type(dense.dtype, [&]<typename From>() {
    with_compute_type(out.values.dtype, [&]<typename To>() {
      const From* in = dense.as<From>();
      To* values = out.values.as<To>();
      parallel_for(out.rows, 4, [&](std::int64_t begin, std::int64_t end) {
        alignas(64) float strip[kStrip] = {};
        alignas(64) float packed[kStrip + 16];
        for (std::int64_t row = begin; row < end; ++row) {
          To* to = values + row * kept;
          for (std::int64_t column = 0; column < out.columns; column += kStrip) {
            const int count = static_cast<int>(std::min(kStrip, out.columns - column));
            convert_strip(strip, in + row * out.columns + column, count);
            const std::uint64_t bits = load_mask_bits(mask + row * mask_bytes(out.columns), column, count);
            const int taken = kernels.compress(packed, bits, count, strip);
            if (accumulate)
              for (int i = 0; i < taken; ++i) packed[i] += static_cast<float>(to[i]);
            convert_strip(to, packed, taken);
            to += taken;
          }
        }
      });
    });
  });
}

void nm_expand(Device& device, const Tensor& dense, const NmMatrix& in) {
  check("nm_expand", in, dense, {in.rows, in.columns});
  if constexpr (kBuiltWithCuda)
    if (device.is_cuda()) return cuda::nm_expand(device, dense, in);
  const NmPackKernels& kernels = nm_pack_kernels(best_vectors());
  const auto* mask = in.mask.as<std::uint8_t>();
  const std::int64_t kept = kept_columns(in.columns, in.pattern);
  with_compute_type(dense.dtype, [&]<typename To>() {
    with_compute_type(in.values.dtype, [&]<typename From>() {
      To* out = dense.as<To>();
      const From* values = in.values.as<From>();
      parallel_for(in.rows, 4, [&](std::int64_t begin, std::int64_t end) {
        alignas(64) float strip[kStrip];
        for (std::int64_t row = begin; row < end; ++row) {
          const From* from = values + row * kept;
          for (std::int64_t column = 0; column < in.columns; column += kStrip) {
            const int count = static_cast<int>(std::min(kStrip, in.columns - column));
            const std::uint64_t bits = load_mask_bits(mask + row * mask_bytes(in.columns), column, count);
            from += kernels.expand(strip, bits, count, from, values + in.rows * kept, in.values.dtype);
            convert_strip(out + row * in.columns + column, strip, count);
          }
        }
      });
    });
  });
}

void nm_expand_transposed(Device& device, const Tensor& dense, const NmMatrix& in) {
  require(!device.is_cuda(), "nm_expand_transposed is for processors");
  check("nm_expand_transposed", in, dense, {in.columns, in.rows});
  const NmPackKernels& kernels = nm_pack_kernels(best_vectors());
  const auto transpose = nm_matmul_kernels(best_vectors()).load_panel;
  const auto* mask = in.mask.as<std::uint8_t>();
  const std::int64_t kept = kept_columns(in.columns, in.pattern);
  const std::int64_t tile = kStrip / in.pattern.of * in.pattern.of;  // whole groups, so that values are found at once
  with_compute_type(dense.dtype, [&]<typename To>() {
    with_compute_type(in.values.dtype, [&]<typename From>() {
      To* out = dense.as<To>();
      const From* values = in.values.as<From>();
      parallel_for(in.columns, tile, [&](std::int64_t begin, std::int64_t end) {
        alignas(64) float rows[kStrip * kStrip];
        alignas(64) float columns[kStrip * kStrip];
        for (std::int64_t column = begin; column < end; column += tile)
          for (std::int64_t row = 0; row < in.rows; row += kStrip) {
            const int wide = static_cast<int>(std::min(tile, end - column));
            const int high = static_cast<int>(std::min(kStrip, in.rows - row));
            for (int r = 0; r < high; ++r)
              kernels.expand(rows + r * kStrip, load_mask_bits(mask + (row + r) * mask_bytes(in.columns), column, wide),
                             wide, values + (row + r) * kept + kept_columns(column, in.pattern),
                             values + in.rows * kept, in.values.dtype);
            transpose(columns, kStrip, rows, DType::f32, kStrip, high, wide);
            for (int c = 0; c < wide; ++c)
              convert_strip(out + (column + c) * in.rows + row, columns + c * kStrip, high);
          }
      });
    });
  });
}

}  // namespace filigree
