// The metadata of 2:4 matrices as sparse tensor cores read it, and the order in which cuSPARSELt keeps it. Pure
// functions.
//
// A group of four entries has four bits: the positions of its two kept entries, two bits each, the left one lower. A
// word is the metadata of 16 neighbouring entries of a row, the first group lowest. The library keeps the words of a
// matrix in an order of its own, which depends on the GPU. It is learned from the library: from matrices in which each
// word's pattern spells the word's number, six patterns a group, to base 1296.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace filigree {

inline constexpr int kWordEntries = 16;
inline constexpr std::uint32_t kWordPatterns = 6 * 6 * 6 * 6;
// The tables of the following functions are numbers of four bits an entry: kernels call them too, and have no arrays of
// the host's.

// The six patterns of a group, as mask bits: 0011 0101 1001 0110 1010 1100.
constexpr std::uint32_t group_pattern(std::uint32_t which) {
  return 0xca6953u >> (4 * which) & 15u;
}
// The metadata of a group, from its mask bits.
constexpr std::uint32_t group_metadata(std::uint32_t bits) {
  constexpr std::uint64_t kTable = [] {
    std::uint64_t table = 0;
    for (std::uint32_t which = 0; which < 6; ++which) {
      const std::uint32_t kept = group_pattern(which);
      std::uint64_t left = 0, right = 3;
      while ((kept >> left & 1) == 0) ++left;
      while ((kept >> right & 1) == 0) --right;
      table |= (left | right << 2) << (4 * kept);
    }
    return table;
  }();
  return static_cast<std::uint32_t>(kTable >> (4 * (bits & 15u))) & 15u;
}
// The metadata of 16 entries, from their mask bits.
constexpr std::uint32_t word_metadata(std::uint32_t bits) {
  std::uint32_t word = 0;
  for (int group = 0; group < 4; ++group) word |= group_metadata(bits >> 4 * group) << 4 * group;
  return word;
}
// Mask bits of 16 entries that spell `code`, below kWordPatterns, and back; -1: no pattern of 2:4.
constexpr std::uint32_t spelled_bits(std::uint32_t code) {
  std::uint32_t bits = 0;
  for (int group = 0; group < 4; ++group, code /= 6) bits |= group_pattern(code % 6) << 4 * group;
  return bits;
}
int read_code(std::uint16_t metadata);

// The library's order, where it is one of tiles: all words of a tile lie together, in the same order in each tile, and
// tiles follow each other in equal steps along both sides.
struct MetadataTiles {
  int rows = 0, columns = 0;                   // entries of a tile
  std::int64_t row_step = 0, column_step = 0;  // words from a tile to the one below, and to the one on its right
  std::vector<std::uint16_t> places;           // word of a tile -> row · (columns / 16) + column / 16 within it

  int words() const { return rows * columns / kWordEntries; }
};
// `numbers`: for each word of the library's order, row · (columns / 16) + column / 16 of its first entry in the matrix.
// Nothing when that is no order of tiles.
std::optional<MetadataTiles> find_metadata_tiles(std::span<const std::uint32_t> numbers, std::int64_t rows,
                                                 std::int64_t columns);

}  // namespace filigree
