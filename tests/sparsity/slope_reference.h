// Slow, plain statements of what SLoPe computes, written from the paper and not from the kernels: the oracle of tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "core/pattern.h"
#include "sparsity/slope_weight.h"
#include "support.h"

namespace filigree::testing {

inline bool bit(const Tensor& mask, std::int64_t row, std::int64_t column) {
  const auto* bytes = mask.as<std::uint8_t>();
  return (bytes[row * mask.shape[1] + column / 8] >> (column % 8)) & 1;
}

// A compressed matrix as dense rows of doubles.
inline std::vector<double> expanded(const NmMatrix& matrix) {
  std::vector<double> dense(static_cast<std::size_t>(matrix.rows * matrix.columns));
  const std::vector<double> values = values_of(matrix.values);
  std::size_t next = 0;
  for (std::int64_t row = 0; row < matrix.rows; ++row)
    for (std::int64_t column = 0; column < matrix.columns; ++column)
      if (bit(matrix.mask, row, column))
        dense[static_cast<std::size_t>(row * matrix.columns + column)] = values[next++];
  return dense;
}

// W^{R,C} (N, K): of each `of` rows of a column, the `keep` kept entries of the largest magnitude; ties to the smaller
// row.
inline std::vector<double> column_pruned(const std::vector<double>& row_pruned, const std::vector<bool>& kept,
                                         std::int64_t rows, std::int64_t columns, Pattern pattern) {
  std::vector<double> out(row_pruned.size());
  for (std::int64_t column = 0; column < columns; ++column)
    for (std::int64_t band = 0; band < rows; band += pattern.of) {
      std::vector<std::int64_t> places;
      for (std::int64_t row = band; row < band + pattern.of; ++row)
        if (kept[static_cast<std::size_t>(row * columns + column)]) places.push_back(row * columns + column);
      std::stable_sort(places.begin(), places.end(), [&](std::int64_t a, std::int64_t b) {
        return std::abs(row_pruned[static_cast<std::size_t>(a)]) > std::abs(row_pruned[static_cast<std::size_t>(b)]);
      });
      if (places.size() > static_cast<std::size_t>(pattern.keep)) places.resize(static_cast<std::size_t>(pattern.keep));
      for (const std::int64_t place : places)
        out[static_cast<std::size_t>(place)] = row_pruned[static_cast<std::size_t>(place)];
    }
  return out;
}

inline std::vector<bool> kept_places(const NmMatrix& matrix) {
  std::vector<bool> kept;
  for (std::int64_t row = 0; row < matrix.rows; ++row)
    for (std::int64_t column = 0; column < matrix.columns; ++column) kept.push_back(bit(matrix.mask, row, column));
  return kept;
}

}  // namespace filigree::testing
