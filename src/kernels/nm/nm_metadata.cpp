#include "kernels/nm/nm_metadata.h"

#include <array>

namespace filigree {
namespace {

// Tiles of this size, if all words follow them.
std::optional<MetadataTiles> tiles_of(std::span<const std::uint32_t> numbers,
                                      const std::vector<std::uint32_t>& word_of_number, std::int64_t columns, int high,
                                      int wide) {
  MetadataTiles tiles;
  tiles.rows = high;
  tiles.columns = wide;
  const std::int64_t matrix_row = columns / kWordEntries;  // words
  const int tile_row = wide / kWordEntries;
  std::int64_t origin = -1;  // of the tile's first entry: its word in the tile
  for (int word = 0; word < tiles.words(); ++word) {
    const std::int64_t row = numbers[static_cast<std::size_t>(word)] / matrix_row,
                       column = numbers[static_cast<std::size_t>(word)] % matrix_row;
    if (row >= high || column >= tile_row) return std::nullopt;
    tiles.places.push_back(static_cast<std::uint16_t>(row * tile_row + column));
    if (row == 0 && column == 0) origin = word;
  }
  const std::int64_t tiles_high = static_cast<std::int64_t>(numbers.size()) / matrix_row / high,
                     tiles_wide = matrix_row / tile_row;
  const auto start = [&](std::int64_t down, std::int64_t right) {
    return static_cast<std::int64_t>(
               word_of_number[static_cast<std::size_t>(down * high * matrix_row + right * tile_row)]) -
           origin;
  };
  if (tiles_high > 1) tiles.row_step = start(1, 0);
  if (tiles_wide > 1) tiles.column_step = start(0, 1);
  if (tiles.row_step % 2 != 0 || tiles.column_step % 2 != 0) return std::nullopt;  // words are written in pairs
  for (std::int64_t down = 0; down < tiles_high; ++down)
    for (std::int64_t right = 0; right < tiles_wide; ++right) {
      const std::int64_t first = down * tiles.row_step + right * tiles.column_step;
      if (first < 0 || first + tiles.words() > static_cast<std::int64_t>(numbers.size())) return std::nullopt;
      for (int word = 0; word < tiles.words(); ++word) {
        const int place = tiles.places[static_cast<std::size_t>(word)];
        const std::int64_t row = down * high + place / tile_row, column = right * tile_row + place % tile_row;
        if (numbers[static_cast<std::size_t>(first + word)] != row * matrix_row + column) return std::nullopt;
      }
    }
  return tiles;
}

}  // namespace

int read_code(std::uint16_t metadata) {
  static constexpr auto kDigits = [] {
    std::array<int, 16> digits{};
    digits.fill(-1);
    for (int which = 0; which < 6; ++which)
      digits[group_metadata(group_pattern(static_cast<std::uint32_t>(which)))] = which;
    return digits;
  }();
  int code = 0;
  for (int group = 3; group >= 0; --group) {
    const int digit = kDigits[metadata >> 4 * group & 15u];
    if (digit < 0) return -1;
    code = 6 * code + digit;
  }
  return code;
}

std::optional<MetadataTiles> find_metadata_tiles(std::span<const std::uint32_t> numbers, std::int64_t rows,
                                                 std::int64_t columns) {
  if (static_cast<std::int64_t>(numbers.size()) != rows * columns / kWordEntries || numbers.empty())
    return std::nullopt;
  std::vector<std::uint32_t> word_of_number(numbers.size());
  for (std::size_t word = 0; word < numbers.size(); ++word) {
    if (numbers[word] >= numbers.size()) return std::nullopt;
    word_of_number[numbers[word]] = static_cast<std::uint32_t>(word);
  }
  // From the smallest on: what Ampere and Hopper use are 64 x 32.
  constexpr int kSizes[][2] = {{64, 32}, {64, 64}, {128, 32}, {128, 64}, {128, 128}};
  for (const auto& [high, wide] : kSizes) {
    if (rows % high != 0 || columns % wide != 0) continue;
    if (auto tiles = tiles_of(numbers, word_of_number, columns, high, wide)) return tiles;
  }
  return std::nullopt;
}

}  // namespace filigree
