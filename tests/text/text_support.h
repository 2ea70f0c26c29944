// Shared by the tests of text: files, archives, sample text, messages.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "core/error.h"
#include "core/random.h"
#include "support.h"

namespace filigree::testing {

inline std::filesystem::path write_text(const std::filesystem::path& path, std::string_view text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary).write(text.data(), static_cast<std::streamsize>(text.size()));
  return path;
}

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// English-like text that needs no file: `words` words from a small set, sentences and lines of varying length.
inline std::string sample_text(int words, std::uint32_t stream = 0) {
  constexpr const char* kWords[] = {"the",   "light",  "of",     "morning", "falls",  "upon",  "old",   "stones",
                                    "and",   "water",  "runs",   "under",   "bridge", "where", "three", "children",
                                    "count", "fishes", "naming", "each",    "after",  "a",     "king",  "unending"};
  const Random random(3, RandomPurpose::test, stream);
  std::string text;
  for (int i = 0; i < words; ++i) {
    const auto index = static_cast<std::uint64_t>(i);
    text += kWords[random.below(index, 24)];
    const std::uint32_t end = random.words(index)[1] % 12;
    text += end == 0 ? ".\n" : end == 1 ? ", " : " ";
  }
  return text;
}

// Expects `statement` to throw UserError with a message that matches `matcher`, and no source location in it.
#define EXPECT_USER_ERROR(statement, matcher)                                                \
  try {                                                                                      \
    statement;                                                                               \
    ADD_FAILURE() << "no UserError from " #statement;                                        \
  } catch (const ::filigree::UserError& failure) {                                           \
    EXPECT_THAT(std::string(failure.what()), matcher);                                       \
    EXPECT_THAT(std::string(failure.what()), ::testing::Not(::testing::HasSubstr(".cpp:"))); \
  }

}  // namespace filigree::testing
