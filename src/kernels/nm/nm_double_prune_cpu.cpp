// SLoPe's second pruning: (W^{R,C})ᵀ from W^R. Runs each step for every sparse weight.
//
// A tile of 64 rows x 64 columns goes through L1: expand the rows, choose `keep` of `of` rows in each column,
// transpose, and compress each column with its chosen rows. A thread owns columns, that is whole rows of the result, so
// that no two threads write one mask byte; 64 rows at 2:4 are 32 values, two full cache lines in fp32, of each of them.
#include <algorithm>
#include <cstddef>

#include "core/parallel.h"
#include "kernels/nm/nm_pack.h"
#include "kernels/nm/nm_vectors.h"

namespace filigree {
namespace {

constexpr std::int64_t kStrip = 64;

void check(const NmMatrix& out, const NmMatrix& forward, std::int64_t row_begin, std::int64_t row_end) {
  const Pattern pattern = forward.pattern;
  require(pattern.keep >= 1 && pattern.keep < pattern.of && pattern.of <= 32 && out.pattern == pattern &&
              forward.columns % pattern.of == 0 && forward.rows % pattern.of == 0,
          "nm_double_prune: pattern " + to_string(pattern) + " does not fit (" + std::to_string(forward.rows) + ", " +
              std::to_string(forward.columns) + ") both ways");
  require(out.rows == forward.columns && out.columns == forward.rows, "nm_double_prune: out is not the transpose");
  for (const NmMatrix* matrix : {&out, &forward})
    require(matrix->values.shape == Shape{matrix->rows, kept_columns(matrix->columns, pattern)} &&
                matrix->mask.shape == Shape{matrix->rows, mask_bytes(matrix->columns)} &&
                matrix->mask.dtype == DType::u8,
            "nm_double_prune: values or mask have another shape than the matrix says");
  require(row_begin >= 0 && row_begin <= row_end && row_end <= forward.rows && row_begin % pattern.of == 0 &&
              row_end % pattern.of == 0,
          "nm_double_prune: rows [" + std::to_string(row_begin) + ", " + std::to_string(row_end) +
              ") are no whole groups of the matrix");
}

template <typename From, typename To>
class Tile {
 public:
  Tile(const NmMatrix& out, const NmMatrix& forward, bool reselect)
      : out_(out),
        forward_(forward),
        pattern_(forward.pattern),
        reselect_(reselect),
        kernels_(nm_pack_kernels(nm_target(cpu_features()).vectors)),
        transpose_(nm_matmul_kernels(nm_target(cpu_features()).vectors).load_panel) {}

  // Rows [row, row + high) and columns [column, column + wide) of forward; at most 64 each, whole groups.
  void run(std::int64_t row, int high, std::int64_t column, int wide) {
    expand(row, high, column, wide);
    if (reselect_) select(high);
    transpose_(columns_, kStrip, rows_, DType::f32, kStrip, high, wide);
    auto* mask = out_.mask.as<std::uint8_t>();
    To* values = out_.values.template as<To>();
    for (int c = 0; c < wide; ++c) {
      std::uint8_t* mask_row = mask + (column + c) * mask_bytes(out_.columns);
      if (reselect_) store_mask_bits(mask_row, row, high, chosen_[c]);
      const std::uint64_t bits = reselect_ ? chosen_[c] : load_mask_bits(mask_row, row, high);
      alignas(64) float packed[kStrip + 16];
      const int count = kernels_.compress(packed, bits, high, columns_ + c * kStrip);
      To* to = values + (column + c) * kept_columns(out_.columns, pattern_) + kept_columns(row, pattern_);
      for (int i = 0; i < count; ++i) to[i] = To(packed[i]);
    }
  }

 private:
  void expand(std::int64_t row, int high, std::int64_t column, int wide) {
    const auto* mask = forward_.mask.as<std::uint8_t>();
    const From* values = forward_.values.template as<From>();
    const std::int64_t kept = kept_columns(forward_.columns, pattern_);
    for (int r = 0; r < high; ++r) {
      kept_[r] = load_mask_bits(mask + (row + r) * mask_bytes(forward_.columns), column, wide);
      kernels_.expand(rows_ + r * kStrip, kept_[r], wide, values + (row + r) * kept + kept_columns(column, pattern_),
                      values + forward_.rows * kept, dtype_of<From>);
    }
  }

  void select(int high) {
    std::fill_n(chosen_, kStrip, std::uint64_t{0});
    for (int r = 0; r < high; r += pattern_.of) {
      alignas(64) std::uint32_t bits[kStrip];
      kernels_.select_rows(bits, rows_ + r * kStrip, kept_ + r, pattern_.keep, pattern_.of);
      for (int c = 0; c < kStrip; ++c) chosen_[c] |= std::uint64_t{bits[c]} << r;
    }
  }

  const NmMatrix& out_;
  const NmMatrix& forward_;
  Pattern pattern_;
  bool reselect_;
  const NmPackKernels& kernels_;
  decltype(NmMatmulKernels::load_panel) transpose_;
  alignas(64) float rows_[kStrip * kStrip] = {};  // (rows, columns)
  alignas(64) float columns_[kStrip * kStrip];    // (columns, rows)
  std::uint64_t kept_[kStrip];                    // of a row: the columns that forward keeps
  std::uint64_t chosen_[kStrip];                  // of a column: the rows that out keeps
};

}  // namespace

void nm_double_prune(Device& device, const NmMatrix& out, const NmMatrix& forward, bool reselect,
                     std::int64_t row_begin, std::int64_t row_end) {
  check(out, forward, row_begin, row_end);
  if constexpr (kBuiltWithCuda)
    if (device.is_cuda()) return cuda::nm_double_prune(device, out, forward, reselect, row_begin, row_end);
  const std::int64_t step = kStrip / forward.pattern.of * forward.pattern.of;  // whole groups
  with_compute_type(forward.values.dtype, [&]<typename From>() {
    with_compute_type(out.values.dtype, [&]<typename To>() {
      parallel_for(forward.columns, step, [&](std::int64_t begin, std::int64_t end) {
        Tile<From, To> tile(out, forward, reselect);
        for (std::int64_t column = begin; column < end; column += step)
          for (std::int64_t row = row_begin; row < row_end; row += step)
            tile.run(row, static_cast<int>(std::min(step, row_end - row)), column,
                     static_cast<int>(std::min(step, end - column)));
      });
    });
  });
}

}  // namespace filigree
