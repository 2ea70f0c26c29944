// The metadata of 2:4 matrices as sparse tensor cores read it, and the order in which cuSPARSELt keeps it. Pure
// functions.
//
// A group of four entries has four bits of metadata: the positions of its two kept entries, two bits each, the left one
// lower. The library keeps the groups of a matrix in an order of its own, which depends on the GPU and is not
// documented: on Hopper the 16 bits that a row's first groups begin hold (row, group), (row + 8, group), (row, group +
// 4), (row + 8, group + 4). So it is learned, from small matrices in which each group's pattern spells a digit of the
// group's number, to base 6.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace filigree {

inline constexpr int kGroupEntries = 4;
inline constexpr std::uint32_t kGroupPatterns = 6;

// The six patterns of a group, as mask bits: 0011 0101 1001 0110 1010 1100.
constexpr std::uint32_t group_pattern(std::uint32_t which) {
  return 0xca6953u >> (4 * which) & 15u;
}
// The metadata of eight groups from their mask bits, two set in each: of the left entry, 0 to 2, and of the right one,
// 1 to 3, each bit for all groups at once.
constexpr std::uint32_t metadata_of(std::uint32_t mask) {
  constexpr std::uint32_t kFirst = 0x11111111u;  // the first entry of each group
  const std::uint32_t second = mask >> 1, third = mask >> 2, fourth = mask >> 3;
  const std::uint32_t left_is_1 = ~mask & second & kFirst, left_is_2 = ~(mask | second) & kFirst;
  const std::uint32_t right_is_odd = (fourth | ~third) & kFirst, right_is_2_or_3 = (third | fourth) & kFirst;
  return left_is_1 | left_is_2 << 1 | right_is_odd << 2 | right_is_2_or_3 << 3;
}
// The pattern whose metadata these four bits are; -1: none of them.
int pattern_of_metadata(std::uint32_t metadata);

// An order of tiles: all groups of a tile lie together, in the same order in each tile. Tiles follow each other from
// left to right and then downwards, or the other way round.
struct MetadataTiles {
  int rows = 0, columns = 0;          // entries of a tile
  bool rightwards = true;             // from a tile to the one on its right, else to the one below
  std::vector<std::uint16_t> places;  // group of a tile, in order -> row · (columns / 4) + column / 4 within the tile

  int groups() const { return rows * columns / kGroupEntries; }
};
// Tiles are sought in a matrix of this size, which holds several of each kind, unequally many along its sides.
inline constexpr std::int64_t kLearnedRows = 256, kLearnedColumns = 384;
// Digits to base 6 that spell its groups' numbers.
inline constexpr int kLearnedDigits = 6;

// `numbers`: for each group of the library's order, row · (columns / 4) + column / 4 of its first entry in the matrix.
// Nothing when that is no order of tiles.
std::optional<MetadataTiles> find_metadata_tiles(std::span<const std::uint32_t> numbers, std::int64_t rows,
                                                 std::int64_t columns);

}  // namespace filigree
