// UTF-8 checking, as the Unicode standard has it: no overlong forms, no surrogates, nothing past U+10FFFF.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace filigree {

// Length of the well-formed sequence that starts at text[at], 1 to 4; 0 where there is none.
inline std::size_t utf8_sequence_length(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) -> unsigned {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0u;
  };
  const auto continues = [&](std::size_t i) { return (byte(i) & 0xC0u) == 0x80u; };
  const unsigned lead = byte(0);
  if (lead < 0x80u) return at < text.size() ? 1 : 0;
  if (lead >= 0xC2u && lead <= 0xDFu) return continues(1) ? 2 : 0;
  if (lead >= 0xE0u && lead <= 0xEFu) {
    if (!continues(1) || !continues(2)) return 0;
    if (lead == 0xE0u && byte(1) < 0xA0u) return 0;  // overlong
    if (lead == 0xEDu && byte(1) > 0x9Fu) return 0;  // a surrogate
    return 3;
  }
  if (lead >= 0xF0u && lead <= 0xF4u) {
    if (!continues(1) || !continues(2) || !continues(3)) return 0;
    if (lead == 0xF0u && byte(1) < 0x90u) return 0;  // overlong
    if (lead == 0xF4u && byte(1) > 0x8Fu) return 0;  // past U+10FFFF
    return 4;
  }
  return 0;
}

// Index of the first byte at or after `from` that begins no well-formed sequence; text.size() when all is well.
inline std::size_t utf8_first_invalid(std::string_view text, std::size_t from = 0) {
  while (from < text.size()) {
    std::uint64_t block = 0;  // eight ASCII bytes at once: most text is
    if (from + sizeof block <= text.size()) {
      std::memcpy(&block, text.data() + from, sizeof block);
      if ((block & 0x8080808080808080u) == 0) {
        from += sizeof block;
        continue;
      }
    }
    const std::size_t length = utf8_sequence_length(text, from);
    if (length == 0) return from;
    from += length;
  }
  return from;
}

// The largest index <= at that does not fall inside a character. Bytes that are no UTF-8 may be cut anywhere.
inline std::size_t utf8_boundary_before(std::string_view text, std::size_t at) {
  for (std::size_t back = 1; back <= 3 && back <= at; ++back) {
    const std::size_t length = utf8_sequence_length(text, at - back);
    if (length > back) return at - back;
    if (length > 0) break;
  }
  return at;
}

// Length of the part of `text` that does not end inside a character: what of a text that still grows can be shown.
inline std::size_t utf8_complete_length(std::string_view text) {
  for (std::size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xC0u) == 0x80u) continue;
    const std::size_t needed = byte >= 0xF5u ? 1 : byte >= 0xF0u ? 4 : byte >= 0xE0u ? 3 : byte >= 0xC2u ? 2 : 1;
    return back < needed ? text.size() - back : text.size();
  }
  return text.size();
}

}  // namespace filigree
