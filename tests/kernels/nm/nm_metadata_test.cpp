#include "kernels/nm/nm_metadata.h"

#include <gtest/gtest.h>

#include <bit>
#include <functional>

namespace filigree {
namespace {

TEST(NmMetadata, AGroupNamesItsTwoPlacesLeftOneLower) {
  EXPECT_EQ(group_metadata(0b0011), 0b0100u);  // places 0 and 1
  EXPECT_EQ(group_metadata(0b0101), 0b1000u);
  EXPECT_EQ(group_metadata(0b1001), 0b1100u);
  EXPECT_EQ(group_metadata(0b0110), 0b1001u);
  EXPECT_EQ(group_metadata(0b1010), 0b1101u);
  EXPECT_EQ(group_metadata(0b1100), 0b1110u);
  EXPECT_EQ(word_metadata(0b1100'0011'1010'0101), 0b1110'0100'1101'1000u);
}

TEST(NmMetadata, CodesAreReadBack) {
  for (std::uint32_t code = 0; code < kWordPatterns; ++code) {
    const std::uint32_t bits = spelled_bits(code);
    for (int group = 0; group < 4; ++group) ASSERT_EQ(std::popcount(bits >> 4 * group & 15u), 2);
    ASSERT_EQ(read_code(static_cast<std::uint16_t>(word_metadata(bits))), static_cast<int>(code));
  }
  EXPECT_EQ(read_code(0), -1);       // both places the first
  EXPECT_EQ(read_code(0x4441), -1);  // the left one on the right
}

// Numbers of a matrix whose word (row, column / 16) lies at place(row, column / 16).
std::vector<std::uint32_t> numbers_of(std::int64_t rows, std::int64_t columns,
                                      const std::function<std::int64_t(std::int64_t, std::int64_t)>& place) {
  const std::int64_t wide = columns / kWordEntries;
  std::vector<std::uint32_t> numbers(static_cast<std::size_t>(rows * wide));
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t column = 0; column < wide; ++column)
      numbers[static_cast<std::size_t>(place(row, column))] = static_cast<std::uint32_t>(row * wide + column);
  return numbers;
}

// Where the found tiles put each word must be where it was.
void expect_found(std::int64_t rows, std::int64_t columns, int high, int wide,
                  const std::function<std::int64_t(std::int64_t, std::int64_t)>& place) {
  const auto tiles = find_metadata_tiles(numbers_of(rows, columns, place), rows, columns);
  ASSERT_TRUE(tiles.has_value()) << rows << " x " << columns;
  EXPECT_EQ(tiles->rows, high);
  EXPECT_EQ(tiles->columns, wide);
  for (std::int64_t down = 0; down < rows / high; ++down)
    for (std::int64_t right = 0; right < columns / wide; ++right)
      for (int word = 0; word < tiles->words(); ++word) {
        const int within = tiles->places[static_cast<std::size_t>(word)];
        const std::int64_t row = down * high + within / (wide / kWordEntries),
                           column = right * (wide / kWordEntries) + within % (wide / kWordEntries);
        ASSERT_EQ(down * tiles->row_step + right * tiles->column_step + word, place(row, column));
      }
}

// A word's place among the 128 of a tile of 64 x 32: a mixture of row and column bits, as the hardware's are.
std::int64_t mixed(std::int64_t row, std::int64_t column) {
  return (row >> 3 & 1) | (column & 1) << 1 | (row >> 4 & 1) << 2 | (row & 7) << 3 | (row >> 5 & 1) << 6;
}

TEST(NmMetadata, TilesAreFoundWhicheverSideTheyFollowFirst) {
  for (const std::int64_t rows : {64, 192, 256})
    for (const std::int64_t columns : {64, 192, 320}) {
      expect_found(rows, columns, 64, 32, [&](std::int64_t row, std::int64_t column) {
        return column / 2 * (rows * 2) + row / 64 * 128 + mixed(row % 64, column % 2);
      });
      expect_found(rows, columns, 64, 32, [&](std::int64_t row, std::int64_t column) {
        return row / 64 * (64 * columns / 16) + column / 2 * 128 + mixed(row % 64, column % 2);
      });
    }
}

TEST(NmMetadata, LargerTilesAreFound) {
  // 64 x 64: two tiles of 64 x 32 word by word.
  expect_found(128, 192, 64, 64, [&](std::int64_t row, std::int64_t column) {
    return row / 64 * (64 * 12) + column / 4 * 256 + 2 * mixed(row % 64, column % 2) + column / 2 % 2;
  });
  // 128 x 64 from two columns of two tiles, one column of them after the other.
  expect_found(256, 128, 128, 64, [&](std::int64_t row, std::int64_t column) {
    return column / 4 * (256 * 4) + row / 128 * 512 + column / 2 % 2 * 256 + 2 * mixed(row % 64, column % 2) +
           row / 64 % 2;
  });
}

TEST(NmMetadata, OtherOrdersAreNotTakenForTiles) {
  EXPECT_FALSE(
      find_metadata_tiles(numbers_of(128, 256, [](auto row, auto column) { return row * 16 + column; }), 128, 256));
  // One pair exchanged in the last of several tiles.
  auto numbers = numbers_of(
      256, 256, [](auto row, auto column) { return column / 2 * 512 + row / 64 * 128 + mixed(row % 64, column % 2); });
  ASSERT_TRUE(find_metadata_tiles(numbers, 256, 256));
  std::swap(numbers[numbers.size() - 1], numbers[numbers.size() - 2]);
  EXPECT_FALSE(find_metadata_tiles(numbers, 256, 256));
  numbers.pop_back();
  EXPECT_FALSE(find_metadata_tiles(numbers, 256, 256));
  EXPECT_FALSE(find_metadata_tiles({}, 0, 0));
}

}  // namespace
}  // namespace filigree
