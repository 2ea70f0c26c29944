#include <algorithm>

#include "core/parallel.h"
#include "kernels/selection/rows.h"

namespace filigree {

void list_rows(Device& device, const Tensor& indices, const Tensor& matrix) {
  if constexpr (kBuiltWithCuda)
    if (device.is_cuda()) return cuda::list_rows(device, indices, matrix);
  const std::int64_t rows = matrix.shape[0], columns = matrix.shape[1];
  const float* const from = matrix.as<float>();
  auto* const used = static_cast<std::int32_t*>(device.scratch(Scratch::kernel, static_cast<std::size_t>(rows) * 4));
  parallel_for(rows, 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row)
      used[row] = std::any_of(from + row * columns, from + (row + 1) * columns, [](float x) { return x != 0.0f; });
  });
  auto* const list = indices.as<std::int32_t>();
  std::int64_t count = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    if (!used[row]) continue;
    require(count < indices.count(), "list_rows: more rows than there is room for");
    list[count++] = static_cast<std::int32_t>(row);
  }
  std::fill(list + count, list + indices.count(), -1);
}

void gather_rows(Device& device, const Tensor& values, const Tensor& indices, const Tensor& matrix) {
  if constexpr (kBuiltWithCuda)
    if (device.is_cuda()) return cuda::gather_rows(device, values, indices, matrix);
  const std::int64_t columns = matrix.shape[1];
  const auto* const list = indices.as<std::int32_t>();
  with_compute_type(values.dtype, [&]<typename T>() {
    parallel_for(indices.count(), 16, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t slot = begin; slot < end; ++slot)
        for (std::int64_t column = 0; column < columns; ++column)
          values.as<T>()[slot * columns + column] =
              T(list[slot] < 0 ? 0.0f : matrix.as<float>()[list[slot] * columns + column]);
    });
  });
}

void add_rows(Device& device, const Tensor& matrix, const Tensor& indices, const Tensor& values) {
  if constexpr (kBuiltWithCuda)
    if (device.is_cuda()) return cuda::add_rows(device, matrix, indices, values);
  const std::int64_t columns = matrix.shape[1];
  const auto* const list = indices.as<std::int32_t>();
  with_compute_type(values.dtype, [&]<typename T>() {
    parallel_for(indices.count(), 16, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t slot = begin; slot < end; ++slot)
        for (std::int64_t column = 0; list[slot] >= 0 && column < columns; ++column)
          matrix.as<float>()[list[slot] * columns + column] +=
              static_cast<float>(values.as<T>()[slot * columns + column]);
    });
  });
}

}  // namespace filigree
