#include "kernels/block/block_mask.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "core/random.h"

namespace filigree {
namespace {

class Mask {
 public:
  explicit Mask(const BlockGrid& grid)
      : columns_(grid.block_columns()), kept_(static_cast<std::size_t>(grid.block_rows() * columns_), 0) {}

  std::uint8_t& at(std::int64_t row, std::int64_t column) {
    return kept_[static_cast<std::size_t>(row * columns_ + column)];
  }
  std::vector<std::uint8_t> take() { return std::move(kept_); }

 private:
  std::int64_t columns_;
  std::vector<std::uint8_t> kept_;
};

// The row's `count` columns with the largest key that are not kept yet; equal keys: the left one.
template <typename Key>
void keep_largest(Mask& mask, std::int64_t row, std::int64_t columns, std::int64_t count, Key&& key) {
  std::vector<std::pair<double, std::int64_t>> order;  // (-key, column)
  for (std::int64_t column = 0; column < columns; ++column)
    if (!mask.at(row, column)) order.emplace_back(-key(column), column);
  std::partial_sort(order.begin(), order.begin() + count, order.end());
  for (std::int64_t i = 0; i < count; ++i) mask.at(row, order[static_cast<std::size_t>(i)].second) = 1;
}

void keep_random(Mask& mask, const BlockGrid& grid, std::int64_t row, std::int64_t count, const Random& random) {
  const std::int64_t columns = grid.block_columns();
  keep_largest(mask, row, columns, count, [&](std::int64_t column) {
    return static_cast<double>(random.words(static_cast<std::uint64_t>(row * columns + column))[0]);
  });
}

}  // namespace

std::int64_t kept_in_a_row(const BlockGrid& grid, double density) {
  require(density > 0.0 && density <= 1.0, "a block mask's density must be above 0 and at most 1");
  const std::int64_t columns = grid.block_columns();
  return std::clamp<std::int64_t>(std::llround(density * static_cast<double>(columns)), 1, columns);
}

// Starts from a regular mask with the wanted counts (row r keeps `keep` columns that follow each other from r · keep
// on, around the edge) and mixes it by exchanges that leave all counts alone: rows a, b and columns c, d with a keeping
// c but not d and b keeping d but not c trade them. 20 attempts an entry leave no trace of the start.
std::vector<std::uint8_t> balanced_block_mask(const BlockGrid& grid, double density, std::uint64_t seed,
                                              std::uint32_t stream) {
  Mask mask(grid);
  const std::int64_t rows = grid.block_rows(), columns = grid.block_columns(), keep = kept_in_a_row(grid, density);
  for (std::int64_t i = 0; i < rows * keep; ++i) mask.at(i / keep, i % columns) = 1;

  const Random random(seed, RandomPurpose::mask, stream);
  const auto attempts = static_cast<std::uint64_t>(20 * rows * columns);
  for (std::uint64_t i = 0; i < attempts; ++i) {
    const auto words = random.words(i);
    const auto below = [](std::uint32_t word, std::int64_t bound) {
      return static_cast<std::int64_t>((std::uint64_t{word} * static_cast<std::uint64_t>(bound)) >> 32);
    };
    const std::int64_t a = below(words[0], rows), b = below(words[1], rows);
    const std::int64_t c = below(words[2], columns), d = below(words[3], columns);
    if (mask.at(a, c) && !mask.at(a, d) && mask.at(b, d) && !mask.at(b, c)) {
      std::swap(mask.at(a, c), mask.at(a, d));
      std::swap(mask.at(b, c), mask.at(b, d));
    }
  }
  return mask.take();
}

std::vector<std::uint8_t> random_block_mask(const BlockGrid& grid, double density, std::uint64_t seed,
                                            std::uint32_t stream) {
  Mask mask(grid);
  const Random random(seed, RandomPurpose::mask, stream);
  const std::int64_t keep = kept_in_a_row(grid, density);
  for (std::int64_t row = 0; row < grid.block_rows(); ++row) keep_random(mask, grid, row, keep, random);
  return mask.take();
}

std::vector<std::uint8_t> diagonal_band_block_mask(const BlockGrid& grid, double density, std::uint64_t seed,
                                                   std::uint32_t stream) {
  Mask mask(grid);
  const Random random(seed, RandomPurpose::mask, stream);
  const std::int64_t rows = grid.block_rows(), columns = grid.block_columns();
  const std::int64_t keep = kept_in_a_row(grid, density), band = (keep + 1) / 2;
  for (std::int64_t row = 0; row < rows; ++row) {
    // Around the column that the diagonal crosses in the middle of the row, and around the edge.
    const std::int64_t first = (2 * row + 1) * columns / (2 * rows) - band / 2;
    for (std::int64_t i = 0; i < band; ++i) mask.at(row, ((first + i) % columns + columns) % columns) = 1;
    keep_random(mask, grid, row, keep - band, random);
  }
  return mask.take();
}

std::vector<std::uint8_t> magnitude_block_mask(const BlockGrid& grid, double density, const float* dense) {
  Mask mask(grid);
  const std::int64_t columns = grid.block_columns(), keep = kept_in_a_row(grid, density);
  std::vector<double> squares(static_cast<std::size_t>(columns));
  for (std::int64_t row = 0; row < grid.block_rows(); ++row) {
    std::fill(squares.begin(), squares.end(), 0.0);
    const std::int64_t end = std::min(grid.rows, (row + 1) * grid.block.rows);
    for (std::int64_t n = row * grid.block.rows; n < end; ++n)
      for (std::int64_t k = 0; k < grid.columns; ++k) {
        const auto value = static_cast<double>(dense[n * grid.columns + k]);
        squares[static_cast<std::size_t>(k / grid.block.columns)] += value * value;
      }
    keep_largest(mask, row, columns, keep,
                 [&](std::int64_t column) { return squares[static_cast<std::size_t>(column)]; });
  }
  return mask.take();
}

}  // namespace filigree
