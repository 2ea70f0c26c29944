#include "eval/python_literal.h"

#include <optional>
#include <string>

namespace filigree {
namespace {

constexpr int kDepth = 16;  // of lists and dictionaries inside each other

void append_utf8(std::string& text, std::uint32_t code) {
  const auto put = [&](std::uint32_t byte) { text += static_cast<char>(byte); };
  if (code < 0x80u) return put(code);
  if (code < 0x800u) {
    put(0xC0u | code >> 6);
  } else if (code < 0x10000u) {
    put(0xE0u | code >> 12);
    put(0x80u | (code >> 6 & 0x3Fu));
  } else {
    put(0xF0u | code >> 18);
    put(0x80u | (code >> 12 & 0x3Fu));
    put(0x80u | (code >> 6 & 0x3Fu));
  }
  put(0x80u | (code & 0x3Fu));
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  std::optional<nlohmann::json> whole() {
    std::optional<nlohmann::json> result = value(0);
    skip_space();
    return at_ == text_.size() ? result : std::nullopt;
  }

 private:
  void skip_space() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) ++at_;
  }
  bool take(char c) {
    skip_space();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  std::optional<nlohmann::json> value(int depth) {
    if (depth > kDepth) return std::nullopt;
    if (take('[')) return list(depth);
    if (take('{')) return dictionary(depth);
    for (const char quote : {'\'', '"'})
      if (take(quote)) return text(quote);
    return std::nullopt;
  }

  std::optional<nlohmann::json> list(int depth) {
    nlohmann::json result = nlohmann::json::array();
    while (!take(']')) {
      if (!result.empty() && !take(',')) return std::nullopt;
      if (!result.empty() && take(']')) break;  // a comma behind the last one
      std::optional<nlohmann::json> item = value(depth + 1);
      if (!item) return std::nullopt;
      result.push_back(*std::move(item));
    }
    return result;
  }

  std::optional<nlohmann::json> dictionary(int depth) {
    nlohmann::json result = nlohmann::json::object();
    while (!take('}')) {
      if (!result.empty() && !take(',')) return std::nullopt;
      const std::optional<nlohmann::json> key = value(depth + 1);
      if (!key || !key->is_string() || !take(':')) return std::nullopt;
      std::optional<nlohmann::json> item = value(depth + 1);
      if (!item) return std::nullopt;
      result[key->get<std::string>()] = *std::move(item);
    }
    return result;
  }

  std::optional<nlohmann::json> text(char quote) {
    std::string result;
    while (at_ < text_.size() && text_[at_] != quote) {
      const char c = text_[at_++];
      if (c != '\\') {
        result += c;
        continue;
      }
      if (at_ >= text_.size()) return std::nullopt;
      if (!escape(text_[at_++], result)) return std::nullopt;
    }
    if (at_ >= text_.size()) return std::nullopt;
    ++at_;
    return nlohmann::json(std::move(result));
  }

  bool escape(char kind, std::string& result) {
    constexpr std::string_view kLetters = "abfnrtv\\'\"";
    constexpr std::string_view kMeanings = "\a\b\f\n\r\t\v\\'\"";
    if (const std::size_t place = kLetters.find(kind); place != std::string_view::npos) {
      result += kMeanings[place];
      return true;
    }
    const std::size_t digits = kind == 'x' ? 2 : kind == 'u' ? 4 : kind == 'U' ? 8 : 0;
    if (digits == 0) {  // Python keeps what it does not know
      result += '\\';
      result += kind;
      return true;
    }
    std::uint32_t code = 0;
    for (std::size_t i = 0; i < digits; ++i, ++at_) {
      constexpr std::string_view kDigits = "0123456789abcdef";
      if (at_ >= text_.size()) return false;
      const std::size_t digit = kDigits.find(static_cast<char>(text_[at_] | (text_[at_] >= 'A' ? 0x20 : 0)));
      if (digit == std::string_view::npos) return false;
      code = code << 4 | static_cast<std::uint32_t>(digit);
    }
    if (code > 0x10FFFFu || (code >= 0xD800u && code <= 0xDFFFu)) return false;
    append_utf8(result, code);
    return true;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

nlohmann::json parse_python_literal(std::string_view text) {
  std::optional<nlohmann::json> value = Parser(text).whole();
  return value ? *std::move(value) : nlohmann::json(nlohmann::json::value_t::discarded);
}

}  // namespace filigree
