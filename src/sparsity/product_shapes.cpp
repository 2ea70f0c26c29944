#include "sparsity/product_shapes.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace filigree {
namespace {

constexpr std::int64_t kShort = 128, kLong = 256;  // sides of a tile; either may lie along the rows
// What a band costs besides: a launch, and the way into its first and out of its last wave.
constexpr double kWavesPerBand = 0.1;

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

std::int64_t waves(std::int64_t rows, std::int64_t columns, int multiprocessors) {
  if (rows == 0) return 0;
  const std::int64_t tiles =
      std::min(ceil_div(rows, kShort) * ceil_div(columns, kLong), ceil_div(rows, kLong) * ceil_div(columns, kShort));
  return ceil_div(tiles, multiprocessors);
}

}  // namespace

std::int64_t gradient_band(std::int64_t outputs, std::int64_t inputs, int multiprocessors) {
  const std::int64_t row_bytes = std::max<std::int64_t>(inputs, 1) * static_cast<std::int64_t>(sizeof(float));
  const std::int64_t most = std::max(kShort, kMostBandBytes / row_bytes / kShort * kShort);
  std::int64_t best = outputs;
  double least = std::numeric_limits<double>::infinity();
  for (std::int64_t band = kShort; band < outputs + kShort && band <= most; band += kShort) {
    const std::int64_t rows = std::min(band, outputs), whole = outputs / rows, rest = outputs % rows;
    const double cost =
        static_cast<double>(whole * waves(rows, inputs, multiprocessors) + waves(rest, inputs, multiprocessors)) +
        kWavesPerBand * static_cast<double>(whole + (rest > 0 ? 1 : 0));
    if (cost >= least) continue;
    least = cost;
    best = rows;
  }
  return best;
}

std::int64_t padded_tokens(std::int64_t tokens) {
  const auto power = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(tokens)));
  const std::int64_t unit = std::max<std::int64_t>(8, power / 8);
  return ceil_div(tokens, unit) * unit;
}

}  // namespace filigree
