#include "kernels/block/block_reference.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace filigree {

namespace {

// Calls body(n, k, index, width) for every row of every kept block: W[n, k .. k + width) is values[index ..].
template <typename Body>
void for_rows(const BlockReference& matrix, Body&& body) {
  const BlockGrid& grid = matrix.grid;
  const std::int64_t height = grid.block.rows, columns = grid.block.columns;
  for (std::int64_t line = 0; line < grid.block_rows(); ++line) {
    const std::int32_t begin = matrix.lists.row_start[static_cast<std::size_t>(line)];
    const std::int32_t end = matrix.lists.row_start[static_cast<std::size_t>(line) + 1];
    for (std::int32_t i = begin; i < end; ++i) {
      const std::int64_t k = matrix.lists.row_entries[static_cast<std::size_t>(i)].other * columns;
      for (std::int64_t row = 0; row < height && line * height + row < grid.rows; ++row)
        body(static_cast<std::size_t>(line * height + row), static_cast<std::size_t>(k),
             static_cast<std::size_t>((i * height + row) * columns),
             static_cast<std::size_t>(std::min(columns, grid.columns - k)));
    }
  }
}

}  // namespace

std::vector<double> BlockReference::dense() const {
  std::vector<double> weight(static_cast<std::size_t>(grid.rows * grid.columns), 0.0);
  for_rows(*this, [&](std::size_t n, std::size_t k, std::size_t index, std::size_t width) {
    for (std::size_t j = 0; j < width; ++j)
      weight[n * static_cast<std::size_t>(grid.columns) + k + j] = values[index + j];
  });
  return weight;
}

std::vector<double> BlockReference::forward(const std::vector<double>& x, const std::vector<double>& bias,
                                            std::int64_t tokens) const {
  const auto inputs = static_cast<std::size_t>(grid.columns), outputs = static_cast<std::size_t>(grid.rows);
  std::vector<double> y(static_cast<std::size_t>(tokens) * outputs, 0.0);
  for (std::size_t i = 0; i < y.size() && !bias.empty(); ++i) y[i] = bias[i % outputs];
  for_rows(*this, [&](std::size_t n, std::size_t k, std::size_t index, std::size_t width) {
    for (std::size_t t = 0; t < static_cast<std::size_t>(tokens); ++t)
      for (std::size_t j = 0; j < width; ++j) y[t * outputs + n] += x[t * inputs + k + j] * values[index + j];
  });
  return y;
}

std::vector<double> BlockReference::input_gradient(const std::vector<double>& dy, std::int64_t tokens) const {
  const auto inputs = static_cast<std::size_t>(grid.columns), outputs = static_cast<std::size_t>(grid.rows);
  std::vector<double> dx(static_cast<std::size_t>(tokens) * inputs, 0.0);
  for_rows(*this, [&](std::size_t n, std::size_t k, std::size_t index, std::size_t width) {
    for (std::size_t t = 0; t < static_cast<std::size_t>(tokens); ++t)
      for (std::size_t j = 0; j < width; ++j) dx[t * inputs + k + j] += dy[t * outputs + n] * values[index + j];
  });
  return dx;
}

std::vector<double> BlockReference::weight_gradient(const std::vector<double>& dy, const std::vector<double>& x,
                                                    std::int64_t tokens) const {
  const auto inputs = static_cast<std::size_t>(grid.columns), outputs = static_cast<std::size_t>(grid.rows);
  std::vector<double> gradient(static_cast<std::size_t>(lists.blocks() * grid.block_elements()), 0.0);
  for_rows(*this, [&](std::size_t n, std::size_t k, std::size_t index, std::size_t width) {
    for (std::size_t t = 0; t < static_cast<std::size_t>(tokens); ++t)
      for (std::size_t j = 0; j < width; ++j) gradient[index + j] += dy[t * outputs + n] * x[t * inputs + k + j];
  });
  return gradient;
}

double gelu_reference(double x) {
  return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

}  // namespace filigree
