#include "io/layer_pattern.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <vector>

namespace filigree {

namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// The number that `text` consists of; nothing when it is anything else or does not fit.
std::optional<std::int64_t> whole_number(std::string_view text) {
  std::int64_t value = 0;
  if (text.empty() || !std::all_of(text.begin(), text.end(), is_digit)) return {};
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size()) return {};
  return value;
}

struct Range {
  std::int64_t first = 0;
  std::int64_t last = 0;
};

std::optional<Range> parse_range(std::string_view part) {
  const std::size_t dash = part.find('-');
  if (dash == std::string_view::npos) return {};
  const auto first = whole_number(part.substr(0, dash));
  const auto last = whole_number(part.substr(dash + 1));
  if (!first || !last) return {};
  return Range{*first, *last};
}

// The part between dots that begins at `begin`.
std::string_view part_at(std::string_view text, std::size_t begin) {
  return text.substr(begin, std::min(text.find('.', begin), text.size()) - begin);
}

}  // namespace

bool matches_layer(std::string_view pattern, std::string_view name) {
  // reached[j]: the pattern so far fits the first j characters of the name.
  std::vector<char> reached(name.size() + 1, 0);
  std::vector<char> next;
  reached[0] = 1;
  for (std::size_t i = 0; i < pattern.size();) {
    next.assign(name.size() + 1, 0);
    const bool part_begins = i == 0 || pattern[i - 1] == '.';
    const std::string_view part = part_begins ? part_at(pattern, i) : std::string_view();
    if (const auto range = parse_range(part)) {
      for (std::size_t j = 0; j <= name.size(); ++j) {
        if (!reached[j] || (j > 0 && name[j - 1] != '.')) continue;
        const std::string_view digits = part_at(name, j);
        const auto number = whole_number(digits);
        if (number && range->first <= *number && *number <= range->last) next[j + digits.size()] = 1;
      }
      i += part.size();
    } else if (pattern[i] == '*') {
      const auto first = std::find(reached.begin(), reached.end(), 1);
      std::fill(next.begin() + (first - reached.begin()), next.end(), 1);
      ++i;
    } else {
      for (std::size_t j = 0; j < name.size(); ++j) next[j + 1] = reached[j] && name[j] == pattern[i];
      ++i;
    }
    reached.swap(next);
  }
  return reached[name.size()] != 0;
}

std::string layer_pattern_problem(std::string_view pattern) {
  if (pattern.empty()) return "a layer's name is empty";
  for (const char c : pattern) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (!letter && !is_digit(c) && c != '.' && c != '_' && c != '*' && c != '-')
      return std::string("a layer's name has no '") + c + "'";
  }
  for (std::size_t begin = 0; begin <= pattern.size();) {
    const std::string_view part = part_at(pattern, begin);
    const auto range = parse_range(part);
    if (range && range->first > range->last) return "the range " + std::string(part) + " is empty";
    begin += part.size() + 1;
  }
  return "";
}

std::optional<Pattern> parse_pattern(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) return {};
  const auto keep = whole_number(text.substr(0, colon));
  const auto of = whole_number(text.substr(colon + 1));
  if (!keep || !of || *keep < 1 || *keep >= *of || *of > 32) return {};
  return Pattern{static_cast<int>(*keep), static_cast<int>(*of)};
}

std::optional<BlockShape> parse_block(std::string_view text) {
  if (text == "auto") return kAutoBlock;
  const std::size_t by = text.find('x');
  if (by == std::string_view::npos) return {};
  const auto rows = whole_number(text.substr(0, by));
  const auto columns = whole_number(text.substr(by + 1));
  const auto fits = [](const auto& extent) { return extent && *extent >= 4 && *extent <= 1024; };
  if (!fits(rows) || !fits(columns)) return {};
  return BlockShape{static_cast<int>(*rows), static_cast<int>(*columns)};
}

}  // namespace filigree
