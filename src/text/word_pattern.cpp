#include "text/word_pattern.h"

#include <algorithm>
#include <utility>

#include "text/unicode_kinds.h"

namespace filigree {

const std::string_view kGpt2Pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
const std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+)"
    R"(|\s+(?!\S)|\s+)";
const std::string_view kCl100kPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+\z|\s*[\r\n]+)"
    R"(|\s+(?!\S)|\s+)";
const std::string_view kO200kPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

namespace {

constexpr std::size_t kMostDigits = 3;  // of a number, in the patterns after GPT-2's

constexpr bool is_letter(CharacterKind kind) {
  return kind == CharacterKind::upper || kind == CharacterKind::lower || kind == CharacterKind::letter;
}
constexpr bool is_number(CharacterKind kind) {
  return kind == CharacterKind::number;
}
constexpr bool is_space(CharacterKind kind) {
  return kind == CharacterKind::space;
}
constexpr bool is_symbol(CharacterKind kind) {  // [^\s\p{L}\p{N}]
  return kind == CharacterKind::other || kind == CharacterKind::mark;
}
constexpr bool is_caseless(CharacterKind kind) {  // [\p{Lm}\p{Lo}\p{M}]
  return kind == CharacterKind::letter || kind == CharacterKind::mark;
}
constexpr bool may_be_upper(CharacterKind kind) {
  return kind == CharacterKind::upper || is_caseless(kind);
}
constexpr bool may_be_lower(CharacterKind kind) {
  return kind == CharacterKind::lower || is_caseless(kind);
}
constexpr bool is_line_end(char c) {
  return c == '\r' || c == '\n';
}
constexpr char ascii_lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
}

// What the matchers share. Their names follow the parts of the expressions.
class KnownPattern : public WordPattern {
 protected:
  Character at(std::string_view text, std::size_t position) const { return character_at(kinds_, text, position); }

  template <typename Is>
  std::size_t run_end(std::string_view text, std::size_t begin, Is is) const {
    for (Character c = at(text, begin); is(c.kind); c = at(text, begin)) begin += c.bytes;
    return begin;
  }

  // 's|'t|'re|'ve|'m|'ll|'d: the end, or `begin` where there is none. Without regard to case also with the long s,
  // which is an s then.
  static std::size_t contraction_end(std::string_view text, std::size_t begin, bool ignore_case) {
    const auto letter = [&](std::size_t i) {
      const char c = begin + i < text.size() ? text[begin + i] : '\0';
      return ignore_case ? ascii_lower(c) : c;
    };
    if (letter(0) != '\'') return begin;
    const char first = letter(1);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return begin + 2;
    const char second = letter(2);
    if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l'))
      return begin + 3;
    return ignore_case && text.substr(begin + 1).starts_with("\xC5\xBF") ? begin + 3 : begin;
  }

  // \s+(?!\S)|\s+ for white space at `begin`: the last of several characters belongs to the word that follows.
  std::size_t space_end(std::string_view text, std::size_t begin) const {
    std::size_t end = begin, last = begin;
    for (Character c = at(text, end); is_space(c.kind); c = at(text, end)) {
      last = end;
      end += c.bytes;
    }
    return end == text.size() || last == begin ? end : last;
  }

  // \s*[\r\n]+ in front of that.
  std::size_t line_end_or_space_end(std::string_view text, std::size_t begin) const {
    const std::string_view space = text.substr(begin, run_end(text, begin, is_space) - begin);
    const std::size_t line_end = space.find_last_of("\r\n");
    return line_end == std::string_view::npos ? space_end(text, begin) : begin + line_end + 1;
  }

  //  ?[^\s\p{L}\p{N}]+ and then any of `tail`; `begin` where there is none.
  std::size_t symbols_end(std::string_view text, std::size_t begin, std::string_view tail) const {
    const std::size_t first = begin + (text[begin] == ' ' ? 1 : 0);
    const std::size_t end = run_end(text, first, is_symbol);
    if (end == first) return begin;
    return std::min(text.find_first_not_of(tail, end), text.size());
  }

  // \p{N}{1,3}
  std::size_t digits_end(std::string_view text, std::size_t begin) const {
    std::size_t end = begin;
    for (std::size_t digits = 0; digits < kMostDigits; ++digits) {
      const Character c = at(text, end);
      if (!is_number(c.kind)) break;
      end += c.bytes;
    }
    return end;
  }

 private:
  const CharacterKind* kinds_ = character_kinds();
};

class Gpt2Pattern final : public KnownPattern {
 public:
  std::size_t word_end(std::string_view text, std::size_t begin) const override {
    if (const std::size_t end = contraction_end(text, begin, false); end > begin) return end;
    const std::size_t first = begin + (text[begin] == ' ' ? 1 : 0);
    const CharacterKind kind = at(text, first).kind;
    if (is_letter(kind)) return run_end(text, first, is_letter);
    if (is_number(kind)) return run_end(text, first, is_number);
    if (is_symbol(kind)) return run_end(text, first, is_symbol);
    return space_end(text, begin);
  }
};

// LLaMA-3's. With `whole_tail` cl100k_base's: white space at the end of a text is one word, line ends or not.
class Llama3Pattern final : public KnownPattern {
 public:
  explicit Llama3Pattern(bool whole_tail) : whole_tail_(whole_tail) {}

  std::size_t word_end(std::string_view text, std::size_t begin) const override {
    if (const std::size_t end = contraction_end(text, begin, true); end > begin) return end;
    const Character first = at(text, begin);
    if (is_letter(first.kind)) return run_end(text, begin, is_letter);
    if (is_number(first.kind)) return digits_end(text, begin);
    if (!is_line_end(text[begin]) && is_letter(at(text, begin + first.bytes).kind))
      return run_end(text, begin + first.bytes, is_letter);
    if (const std::size_t end = symbols_end(text, begin, "\r\n"); end > begin) return end;
    if (whole_tail_ && run_end(text, begin, is_space) == text.size()) return text.size();
    return line_end_or_space_end(text, begin);
  }

 private:
  bool whole_tail_;
};

class O200kPattern final : public KnownPattern {
 public:
  std::size_t word_end(std::string_view text, std::size_t begin) const override {
    const Character first = at(text, begin);
    const bool may_lead = !is_letter(first.kind) && !is_number(first.kind) && !is_line_end(text[begin]);
    const std::size_t behind = begin + (may_lead ? first.bytes : 0);
    // Each of the two kinds of words is tried with a leading symbol first, and then without.
    for (const auto words_end : {&O200kPattern::lower_end, &O200kPattern::upper_end}) {
      std::size_t end = (this->*words_end)(text, behind);
      if (end == behind) {
        end = (this->*words_end)(text, begin);
        if (end == begin) continue;
      }
      return contraction_end(text, end, true);
    }
    if (is_number(first.kind)) return digits_end(text, begin);
    if (const std::size_t end = symbols_end(text, begin, "\r\n/"); end > begin) return end;
    return line_end_or_space_end(text, begin);
  }

 private:
  // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+, or `begin`
  std::size_t lower_end(std::string_view text, std::size_t begin) const {
    std::size_t end = begin;
    std::size_t caseless_end = begin;  // of the last character so far that the second part may take from the first
    for (Character c = at(text, end); may_be_upper(c.kind); c = at(text, end)) {
      end += c.bytes;
      if (is_caseless(c.kind)) caseless_end = end;
    }
    const std::size_t lower = run_end(text, end, may_be_lower);
    return lower > end ? lower : caseless_end;
  }

  // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+, or `begin`; nothing follows that may be lower, or lower_end() had found it.
  std::size_t upper_end(std::string_view text, std::size_t begin) const { return run_end(text, begin, may_be_upper); }
};

class DigitPattern final : public KnownPattern {
 public:
  explicit DigitPattern(bool each_digit) : each_digit_(each_digit) {}

  std::size_t word_end(std::string_view text, std::size_t begin) const override {
    const Character first = at(text, begin);
    if (is_number(first.kind)) return each_digit_ ? begin + first.bytes : run_end(text, begin, is_number);
    return run_end(text, begin, [](CharacterKind kind) { return kind != CharacterKind::none && !is_number(kind); });
  }

 private:
  bool each_digit_;
};

std::unique_ptr<WordPattern> known_pattern(std::string_view expression) {
  if (expression == kGpt2Pattern) return std::make_unique<Gpt2Pattern>();
  if (expression == kLlama3Pattern) return std::make_unique<Llama3Pattern>(false);
  if (expression == kCl100kPattern) return std::make_unique<Llama3Pattern>(true);
  if (expression == kO200kPattern) return std::make_unique<O200kPattern>();
  return nullptr;
}

}  // namespace

std::unique_ptr<WordPattern> word_pattern(const std::string& expression, const std::string& source) {
  std::unique_ptr<WordPattern> known = known_pattern(expression);
  return known ? std::move(known) : regex_word_pattern(expression, source);
}

std::unique_ptr<WordPattern> digit_pattern(bool each_digit) {
  return std::make_unique<DigitPattern>(each_digit);
}

bool is_known_word_pattern(std::string_view expression) {
  return known_pattern(expression) != nullptr;
}

}  // namespace filigree
