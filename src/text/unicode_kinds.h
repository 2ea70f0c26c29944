// What kind of character each code point is, as far as the patterns ask that cut text into words for byte-pair
// encoding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "text/utf8.h"

namespace filigree {

enum class CharacterKind : std::uint8_t {
  other,   // punctuation, symbols, control characters; bytes that are no UTF-8
  upper,   // Lu, Lt
  lower,   // Ll
  letter,  // Lm, Lo
  mark,    // M
  number,  // N
  space,   // the property White_Space
  none,    // the end of the text
};

// Of all code points, from a table of Unicode 16.0.
const CharacterKind* character_kinds();  // (0x110000)

struct Character {
  CharacterKind kind;
  std::uint8_t bytes;  // 0 at the end of the text
};

// The character at text[at] or, where no well-formed one begins, the byte there, which is `other`.
inline Character character_at(const CharacterKind* kinds, std::string_view text, std::size_t at) {
  if (at >= text.size()) return {CharacterKind::none, 0};
  const auto lead = static_cast<unsigned char>(text[at]);
  if (lead < 0x80u) return {kinds[lead], 1};
  const std::size_t length = utf8_sequence_length(text, at);
  if (length == 0) return {CharacterKind::other, 1};
  std::uint32_t code = lead & (0x7Fu >> length);
  for (std::size_t i = 1; i < length; ++i) code = code << 6 | (static_cast<unsigned char>(text[at + i]) & 0x3Fu);
  return {kinds[code], static_cast<std::uint8_t>(length)};
}

}  // namespace filigree
