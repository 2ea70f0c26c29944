#include "text/byte_level_alphabet.h"

#include <array>
#include <cstddef>
#include <cstdint>

#include "text/utf8.h"

namespace filigree {
namespace {

constexpr std::size_t kCharacters = 256 + 68;  // the last is U+0143

constexpr bool prints(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr std::array<std::uint16_t, 256> kCharacterOfByte = [] {
  std::array<std::uint16_t, 256> result{};
  std::uint16_t next = 256;
  for (unsigned byte = 0; byte < 256; ++byte) result[byte] = prints(byte) ? static_cast<std::uint16_t>(byte) : next++;
  return result;
}();

constexpr std::array<std::int16_t, kCharacters> kByteOfCharacter = [] {
  std::array<std::int16_t, kCharacters> result{};
  result.fill(-1);
  for (unsigned byte = 0; byte < 256; ++byte) result[kCharacterOfByte[byte]] = static_cast<std::int16_t>(byte);
  return result;
}();

}  // namespace

std::string byte_level_text(std::string_view bytes) {
  std::string text;
  text.reserve(2 * bytes.size());
  for (const char c : bytes) {
    const unsigned code = kCharacterOfByte[static_cast<unsigned char>(c)];
    if (code < 0x80) {
      text += static_cast<char>(code);
    } else {
      text += static_cast<char>(0xC0u | code >> 6);
      text += static_cast<char>(0x80u | (code & 0x3Fu));
    }
  }
  return text;
}

std::optional<std::string> byte_level_bytes(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_sequence_length(text, at);
    if (length != 1 && length != 2) return std::nullopt;
    std::size_t code = static_cast<unsigned char>(text[at]);
    if (length == 2) code = (code & 0x1Fu) << 6 | (static_cast<unsigned char>(text[at + 1]) & 0x3Fu);
    if (code >= kCharacters || kByteOfCharacter[code] < 0) return std::nullopt;
    bytes += static_cast<char>(kByteOfCharacter[code]);
    at += length;
  }
  return bytes;
}

}  // namespace filigree
