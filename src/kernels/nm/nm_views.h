// A product's arguments as its kernels see them (nm_vectors.h).
#pragma once

#include <cstddef>

#include "kernels/nm/nm_vectors.h"

namespace filigree {

inline NmStore store_of(const NmMatmulArgs& args) {
  NmStore out;
  out.y = args.y.data;
  out.dtype = args.y.dtype;
  out.row_stride = args.weight.rows;
  out.bias = args.bias.empty() ? nullptr : args.bias.as<float>();
  out.scale = args.scale;
  out.accumulate = args.accumulate;
  return out;
}

// From `token` and `row` on.
inline NmStore store_of(const NmMatmulArgs& args, std::int64_t token, std::int64_t row) {
  NmStore out = store_of(args);
  out.y =
      static_cast<std::byte*>(out.y) + (token * out.row_stride + row) * static_cast<std::int64_t>(size_of(out.dtype));
  if (out.bias) out.bias += row;
  return out;
}

inline NmRows rows_of(const NmMatrix& matrix) {
  NmRows rows;
  rows.values = matrix.values.data;
  rows.dtype = matrix.values.dtype;
  rows.value_stride = kept_columns(matrix.columns, matrix.pattern);
  rows.mask = static_cast<const std::uint8_t*>(matrix.mask.data);
  rows.mask_stride = mask_bytes(matrix.columns);
  rows.columns = matrix.columns;
  rows.rows = matrix.rows;
  return rows;
}

// Rows [row, row + rows), cut at the end of the matrix, and columns [column, column + columns), whole groups.
inline NmRows block_of(const NmMatrix& matrix, std::int64_t row, std::int64_t rows, std::int64_t column,
                       std::int64_t columns) {
  NmRows in = rows_of(matrix);
  in.values =
      static_cast<const std::byte*>(in.values) +
      (row * in.value_stride + kept_columns(column, matrix.pattern)) * static_cast<std::int64_t>(size_of(in.dtype));
  in.mask += row * in.mask_stride;
  in.begin = column;
  in.columns = columns;
  in.rows = std::min(rows, matrix.rows - row);
  return in;
}

}  // namespace filigree
