#include "kernels/nm/nm_metadata.h"

namespace filigree {
namespace {

// Tiles of this size, if all groups follow them.
std::optional<MetadataTiles> tiles_of(std::span<const std::uint32_t> numbers, std::int64_t rows, std::int64_t columns,
                                      int high, int wide, bool rightwards) {
  MetadataTiles tiles{.rows = high, .columns = wide, .rightwards = rightwards, .places = {}};
  const std::int64_t matrix_row = columns / kGroupEntries, tile_row = wide / kGroupEntries;  // groups
  for (int group = 0; group < tiles.groups(); ++group) {
    const std::int64_t row = numbers[static_cast<std::size_t>(group)] / matrix_row,
                       column = numbers[static_cast<std::size_t>(group)] % matrix_row;
    if (row >= high || column >= tile_row) return std::nullopt;
    tiles.places.push_back(static_cast<std::uint16_t>(row * tile_row + column));
  }
  const std::int64_t tiles_high = rows / high, tiles_wide = columns / wide;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const auto tile = static_cast<std::int64_t>(i) / tiles.groups();
    const int place = tiles.places[i % static_cast<std::size_t>(tiles.groups())];
    const std::int64_t down = rightwards ? tile / tiles_wide : tile % tiles_high;
    const std::int64_t right = rightwards ? tile % tiles_wide : tile / tiles_high;
    if (numbers[i] != (down * high + place / tile_row) * matrix_row + right * tile_row + place % tile_row)
      return std::nullopt;
  }
  return tiles;
}

}  // namespace

int pattern_of_metadata(std::uint32_t metadata) {
  for (std::uint32_t which = 0; which < kGroupPatterns; ++which)
    if ((metadata_of(group_pattern(which)) & 15u) == metadata) return static_cast<int>(which);
  return -1;
}

std::optional<MetadataTiles> find_metadata_tiles(std::span<const std::uint32_t> numbers, std::int64_t rows,
                                                 std::int64_t columns) {
  if (static_cast<std::int64_t>(numbers.size()) != rows * columns / kGroupEntries || numbers.empty())
    return std::nullopt;
  // From the smallest on: Hopper's are 64 x 32.
  constexpr int kSizes[][2] = {{64, 32}, {64, 64}, {128, 32}, {128, 64}, {128, 128}};
  for (const auto& [high, wide] : kSizes) {
    if (rows % high != 0 || columns % wide != 0) continue;
    for (const bool rightwards : {true, false})
      if (auto tiles = tiles_of(numbers, rows, columns, high, wide, rightwards)) return tiles;
  }
  return std::nullopt;
}

}  // namespace filigree
