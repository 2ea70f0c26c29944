#include "kernels/nm/nm_metadata.h"

#include <gtest/gtest.h>

#include <functional>
#include <utility>

namespace filigree {
namespace {

TEST(NmMetadata, AGroupNamesItsTwoPlacesLeftOneLower) {
  // Places 0 and 1, 0 and 2, and so on; the last two groups as the first.
  EXPECT_EQ(metadata_of(0b0011'0011'1100'1010'0110'1001'0101'0011), 0b0100'0100'1110'1101'1001'1100'1000'0100u);
}

TEST(NmMetadata, GroupsDoNotTouchEachOther) {
  for (std::uint32_t which = 0; which < kGroupPatterns; ++which) {
    const std::uint32_t alone = metadata_of(group_pattern(which) * 0x11111111u);
    EXPECT_EQ(alone, (alone & 15u) * 0x11111111u);
    for (std::uint32_t other = 0; other < kGroupPatterns; ++other)
      for (int place = 0; place < 32; place += 4) {
        const std::uint32_t here = 15u << place;
        const std::uint32_t mixed = (group_pattern(which) * 0x11111111u & ~here) | group_pattern(other) << place;
        ASSERT_EQ(metadata_of(mixed) & ~here, alone & ~here);
        ASSERT_EQ(metadata_of(mixed) >> place & 15u, metadata_of(group_pattern(other)) & 15u);
      }
  }
}

TEST(NmMetadata, PatternsAreReadBack) {
  for (std::uint32_t which = 0; which < kGroupPatterns; ++which)
    EXPECT_EQ(pattern_of_metadata(metadata_of(group_pattern(which)) & 15u), static_cast<int>(which));
  EXPECT_EQ(pattern_of_metadata(0), -1);    // both places the first
  EXPECT_EQ(pattern_of_metadata(0b1), -1);  // the left one on the right
}

// Numbers of a matrix whose group (row, column / 4) lies at place(row, column / 4).
using Place = std::function<std::int64_t(std::int64_t, std::int64_t)>;
std::vector<std::uint32_t> numbers_of(std::int64_t rows, std::int64_t columns, const Place& place) {
  const std::int64_t wide = columns / kGroupEntries;
  std::vector<std::uint32_t> numbers(static_cast<std::size_t>(rows * wide));
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t column = 0; column < wide; ++column)
      numbers[static_cast<std::size_t>(place(row, column))] = static_cast<std::uint32_t>(row * wide + column);
  return numbers;
}

// Where the found tiles put each group must be where it was.
void expect_found(std::int64_t rows, std::int64_t columns, int high, int wide, const Place& place) {
  const auto tiles = find_metadata_tiles(numbers_of(rows, columns, place), rows, columns);
  ASSERT_TRUE(tiles.has_value()) << rows << " x " << columns;
  EXPECT_EQ(tiles->rows, high);
  EXPECT_EQ(tiles->columns, wide);
  for (std::int64_t down = 0; down < rows / high; ++down)
    for (std::int64_t right = 0; right < columns / wide; ++right)
      for (int group = 0; group < tiles->groups(); ++group) {
        const int within = tiles->places[static_cast<std::size_t>(group)];
        const std::int64_t row = down * high + within / (wide / kGroupEntries),
                           column = right * (wide / kGroupEntries) + within % (wide / kGroupEntries);
        const std::int64_t tile = tiles->rightwards ? down * (columns / wide) + right : right * (rows / high) + down;
        ASSERT_EQ(tile * tiles->groups() + group, place(row, column)) << rows << " x " << columns;
      }
}

// A group's place among the 512 of a tile of 64 x 32, as cuSPARSELt 0.8.0 has it on an H200: 16 bits are two rows, 8
// apart, times two groups, 4 apart.
std::int64_t hopper(std::int64_t row, std::int64_t group) {
  return (row >> 3 & 1) | (group >> 2 & 1) << 1 | (group & 3) << 2 | (row & 7) << 4 | (row >> 4 & 3) << 7;
}

TEST(NmMetadata, HoppersOrderIsFound) {
  for (const auto& [rows, columns] : {std::pair{64, 64},
                                      {128, 128},
                                      {256, 512},
                                      {1600, 320},
                                      {192, 1600},
                                      {static_cast<int>(kLearnedRows), static_cast<int>(kLearnedColumns)}})
    expect_found(rows, columns, 64, 32, [columns = columns](std::int64_t row, std::int64_t group) {
      return row / 64 * (64 * columns / 4) + group / 8 * 512 + hopper(row % 64, group % 8);
    });
}

TEST(NmMetadata, TilesMayFollowEachOtherDownwards) {
  for (const std::int64_t rows : {128, 192, 256})
    for (const std::int64_t columns : {64, 192, 320})
      expect_found(rows, columns, 64, 32, [&](std::int64_t row, std::int64_t group) {
        return group / 8 * (rows * 8) + row / 64 * 512 + hopper(row % 64, group % 8);
      });
}

TEST(NmMetadata, LargerTilesAreFound) {
  // 64 x 64: two tiles of 64 x 32 word by word.
  expect_found(kLearnedRows, kLearnedColumns, 64, 64, [](std::int64_t row, std::int64_t group) {
    const std::int64_t place = hopper(row % 64, group % 8);
    return (row / 64 * (kLearnedColumns / 64) + group / 16) * 1024 + place / 4 * 8 + group / 8 % 2 * 4 + place % 4;
  });
  // 128 x 64 from two columns of two tiles, one column of them after the other.
  expect_found(kLearnedRows, kLearnedColumns, 128, 64, [](std::int64_t row, std::int64_t group) {
    return (group / 16 * (kLearnedRows / 128) + row / 128) * 2048 + group / 8 % 2 * 1024 +
           2 * hopper(row % 64, group % 8) + row / 64 % 2;
  });
}

TEST(NmMetadata, OtherOrdersAreNotTakenForTiles) {
  EXPECT_FALSE(
      find_metadata_tiles(numbers_of(128, 256, [](auto row, auto group) { return row * 64 + group; }), 128, 256));
  // One pair exchanged in the last of several tiles.
  auto numbers = numbers_of(
      256, 256, [](auto row, auto group) { return (row / 64 * 8 + group / 8) * 512 + hopper(row % 64, group % 8); });
  ASSERT_TRUE(find_metadata_tiles(numbers, 256, 256));
  std::swap(numbers[numbers.size() - 1], numbers[numbers.size() - 2]);
  EXPECT_FALSE(find_metadata_tiles(numbers, 256, 256));
  numbers.pop_back();
  EXPECT_FALSE(find_metadata_tiles(numbers, 256, 256));
  EXPECT_FALSE(find_metadata_tiles({}, 0, 0));
}

TEST(NmMetadata, TheLearnedMatrixHasFewEnoughGroups) {
  std::int64_t numbers = 1;
  for (int digit = 0; digit < kLearnedDigits; ++digit) numbers *= kGroupPatterns;
  EXPECT_GE(numbers, kLearnedRows * kLearnedColumns / kGroupEntries);
}

}  // namespace
}  // namespace filigree
