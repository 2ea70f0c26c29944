#include "text/utf8.h"

#include <string>

#include "text_support.h"

namespace filigree {
namespace {

std::string encoded(std::uint32_t code) {
  std::string text;
  if (code < 0x80) {
    text += static_cast<char>(code);
  } else if (code < 0x800) {
    text += static_cast<char>(0xC0 | (code >> 6));
    text += static_cast<char>(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    text += static_cast<char>(0xE0 | (code >> 12));
    text += static_cast<char>(0x80 | ((code >> 6) & 0x3F));
    text += static_cast<char>(0x80 | (code & 0x3F));
  } else {
    text += static_cast<char>(0xF0 | (code >> 18));
    text += static_cast<char>(0x80 | ((code >> 12) & 0x3F));
    text += static_cast<char>(0x80 | ((code >> 6) & 0x3F));
    text += static_cast<char>(0x80 | (code & 0x3F));
  }
  return text;
}

TEST(Utf8, AcceptsEveryCharacterAndNoSurrogate) {
  for (std::uint32_t code = 0; code <= 0x110FFF; code += code < 0x3000 ? 1 : 61) {
    const std::string text = encoded(code);
    const bool valid = code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF);
    ASSERT_EQ(utf8_sequence_length(text, 0), valid ? text.size() : 0) << code;
  }
  EXPECT_EQ(utf8_sequence_length(encoded(0xD800), 0), 0u);
  EXPECT_EQ(utf8_sequence_length(encoded(0xDFFF), 0), 0u);
  EXPECT_EQ(utf8_sequence_length(encoded(0xD7FF), 0), 3u);
  EXPECT_EQ(utf8_sequence_length(encoded(0xE000), 0), 3u);
  EXPECT_EQ(utf8_sequence_length(encoded(0x10FFFF), 0), 4u);
  EXPECT_EQ(utf8_sequence_length(encoded(0x110000), 0), 0u);
}

TEST(Utf8, RefusesOverlongAndBrokenSequences) {
  for (const std::string text : {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xF0\x8F\xBF\xBF", "\xC3", "\xE2\x82",
                                 "\xF0\x9F\x98", "\xE2\x28\xA1", "\xF8\x88\x80\x80", "\xFF", ""})
    EXPECT_EQ(utf8_sequence_length(text, 0), 0u) << text.size();
}

TEST(Utf8, FindsTheFirstInvalidByteAnywhere) {
  for (std::size_t at = 0; at < 40; ++at) {
    const std::string text = "plain words, caf\xC3\xA9 \xE2\x82\xAC and \xF0\x9F\x98\x80 more words";
    EXPECT_EQ(utf8_first_invalid(text), text.size());
    if (utf8_boundary_before(text, at) != at) continue;
    const std::string broken = text.substr(0, at) + '\xFF' + text.substr(at);
    EXPECT_EQ(utf8_first_invalid(broken), at);
  }
}

TEST(Utf8, BoundariesKeepCharactersWhole) {
  const std::string text = "a\xF0\x9F\x98\x80z";  // one byte, four, one
  EXPECT_EQ(utf8_boundary_before(text, 0), 0u);
  EXPECT_EQ(utf8_boundary_before(text, 1), 1u);
  EXPECT_EQ(utf8_boundary_before(text, 2), 1u);
  EXPECT_EQ(utf8_boundary_before(text, 4), 1u);
  EXPECT_EQ(utf8_boundary_before(text, 5), 5u);
  EXPECT_EQ(utf8_boundary_before(text, 6), 6u);
  EXPECT_EQ(utf8_boundary_before("\x80\x80\x80\x80", 3), 3u);  // no characters to keep
}

TEST(Utf8, ATextThatGrowsIsShownUpToItsLastCharacter) {
  const std::string text = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80";
  const std::size_t complete[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10};
  for (std::size_t size = 0; size <= text.size(); ++size)
    EXPECT_EQ(utf8_complete_length(text.substr(0, size)), complete[size]) << size;
  for (const std::string bytes :
       {"a\xFF", "\x80\x80\x80\x80", "\xC3\xA9\x80", "\xC0"})  // no character can come of them
    EXPECT_EQ(utf8_complete_length(bytes), bytes.size());
}

}  // namespace
}  // namespace filigree
