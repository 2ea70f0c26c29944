#include "kernels/block/block_pack.h"

#include <algorithm>

#include "core/parallel.h"

namespace filigree {
namespace {

void check(const BlockMatrix& matrix, const Tensor& dense) {
  require(dense.shape == Shape{matrix.grid.rows, matrix.grid.columns}, "the dense matrix has another shape than W");
  require(matrix.values.shape == Shape{matrix.lists.blocks, matrix.grid.block.rows, matrix.grid.block.columns},
          "the values are not those of the lists");
}

template <typename T>
void fill_zero(T* data, std::int64_t count) {
  parallel_for(count, 4096,
               [&](std::int64_t begin, std::int64_t end) { std::fill(data + begin, data + end, T(0.0f)); });
}

// Calls body(n, k, index, width) for every row of every kept block: W[n, k .. k + width) is values[index ..].
template <typename Body>
void for_rows(const BlockMatrix& matrix, Body&& body) {
  const BlockGrid& grid = matrix.grid;
  const std::int64_t height = grid.block.rows, columns = grid.block.columns;
  parallel_for(grid.block_rows(), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t line = begin; line < end; ++line)
      for (std::int64_t row = 0; row < std::min(height, grid.rows - line * height); ++row)
        for (std::int32_t i = matrix.lists.row_start[line]; i < matrix.lists.row_start[line + 1]; ++i) {
          const std::int64_t k = matrix.lists.row_entries[i].other * columns;
          body(line * height + row, k, (i * height + row) * columns, std::min(columns, grid.columns - k));
        }
  });
}

void compress(const BlockMatrix& out, const Tensor& dense, bool accumulate) {
  with_compute_type(out.values.dtype, [&]<typename To>() {
    with_compute_type(dense.dtype, [&]<typename From>() {
      To* values = out.values.as<To>();
      const From* from = dense.as<From>();
      if (!accumulate) fill_zero(values, out.values.count());
      for_rows(out, [&](std::int64_t n, std::int64_t k, std::int64_t index, std::int64_t width) {
        const From* row = from + n * out.grid.columns + k;
        for (std::int64_t j = 0; j < width; ++j) {
          const float value = static_cast<float>(row[j]);
          values[index + j] = To(accumulate ? static_cast<float>(values[index + j]) + value : value);
        }
      });
    });
  });
}

void expand(const Tensor& dense, const BlockMatrix& in) {
  with_compute_type(in.values.dtype, [&]<typename From>() {
    with_compute_type(dense.dtype, [&]<typename To>() {
      const From* values = in.values.as<From>();
      To* to = dense.as<To>();
      fill_zero(to, dense.count());
      for_rows(in, [&](std::int64_t n, std::int64_t k, std::int64_t index, std::int64_t width) {
        for (std::int64_t j = 0; j < width; ++j)
          to[n * in.grid.columns + k + j] = To(static_cast<float>(values[index + j]));
      });
    });
  });
}

}  // namespace

void block_compress(Device& device, const BlockMatrix& out, const Tensor& dense, bool accumulate) {
  check(out, dense);
  if constexpr (kBuiltWithCuda)
    if (device.is_cuda()) return cuda::block_compress(device, out, dense, accumulate);
  compress(out, dense, accumulate);
}

void block_expand(Device& device, const Tensor& dense, const BlockMatrix& in) {
  check(in, dense);
  if constexpr (kBuiltWithCuda)
    if (device.is_cuda()) return cuda::block_expand(device, dense, in);
  expand(dense, in);
}

}  // namespace filigree
