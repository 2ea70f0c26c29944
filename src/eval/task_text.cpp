#include "eval/task_text.h"

#include <algorithm>

namespace filigree {
namespace {

bool continues(char c) {
  return (static_cast<unsigned char>(c) & 0xC0u) == 0x80u;
}

// The code point of the character of `length` bytes that begins at text[at].
std::uint32_t code_point(std::string_view text, std::size_t at, std::size_t length) {
  std::uint32_t code = static_cast<unsigned char>(text[at]);
  if (length > 1) code &= 0x7Fu >> length;
  for (std::size_t i = 1; i < length; ++i) code = code << 6 | (static_cast<unsigned char>(text[at + i]) & 0x3Fu);
  return code;
}

// As Python's str.isspace.
bool is_space(std::uint32_t code) {
  return (code >= 0x09 && code <= 0x0D) || (code >= 0x1C && code <= 0x20) || code == 0x85 || code == 0xA0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 || code == 0x202F ||
         code == 0x205F || code == 0x3000;
}

// Bytes of the white space at the text's end.
std::size_t space_at_end(std::string_view text) {
  std::size_t end = text.size();
  while (end > 0) {
    std::size_t begin = end - 1;
    while (begin > 0 && continues(text[begin])) --begin;
    if (!is_space(code_point(text, begin, end - begin))) break;
    end = begin;
  }
  return text.size() - end;
}

}  // namespace

std::string strip_right(std::string_view text) {
  return std::string(text.substr(0, text.size() - space_at_end(text)));
}

std::string strip(std::string_view text) {
  std::size_t begin = 0;
  while (begin < text.size()) {
    std::size_t length = 1;
    while (begin + length < text.size() && continues(text[begin + length])) ++length;
    if (!is_space(code_point(text, begin, length))) break;
    begin += length;
  }
  return strip_right(text.substr(begin));
}

std::string capitalize(std::string_view text) {
  std::string result(text);
  bool first = true;
  for (std::size_t i = 0; i < result.size(); ++i) {
    char& c = result[i];
    if (continues(c)) continue;
    const bool latin = static_cast<unsigned char>(c) == 0xC3u && i + 1 < result.size();  // U+00C0 to U+00FF
    if (first && c >= 'a' && c <= 'z') c = static_cast<char>(c - 32);
    if (!first && c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
    if (latin) {
      auto second = static_cast<unsigned char>(result[i + 1]);
      // Multiplication and division signs stand between the letters; sharp s and y with dots have no upper case here.
      if (first && second >= 0xA0u && second <= 0xBEu && second != 0xB7u) second -= 0x20u;
      if (!first && second >= 0x80u && second <= 0x9Eu && second != 0x97u) second += 0x20u;
      result[i + 1] = static_cast<char>(second);
    }
    first = false;
  }
  return result;
}

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string result;
  for (std::size_t begin = 0;;) {
    const std::size_t at = text.find(from, begin);
    result += text.substr(begin, at == std::string_view::npos ? at : at - begin);
    if (at == std::string_view::npos) return result;
    result += to;
    begin = at + from.size();
  }
}

std::int64_t count_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return !continues(c); });
}

std::string without_brackets(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '[') {
      const std::size_t end = text.find_first_of("]\n", i + 1);
      if (end != std::string_view::npos && text[end] == ']') {
        i = end;
        continue;
      }
    }
    result += text[i];
  }
  return result;
}

}  // namespace filigree
