// The patterns that cut text into words before byte-pair encoding: a merge never crosses from one word into the next.
//
// The well-known ones are matched by code of their own, several times faster than a regular expression and with the
// Unicode version of the libraries that made them known (PCRE2's is older). Others go through PCRE2.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace filigree {

class WordPattern {
 public:
  virtual ~WordPattern() = default;
  // The end of the word that begins at text[begin]; begin < text.size(). What the pattern does not match is a word too.
  virtual std::size_t word_end(std::string_view text, std::size_t begin) const = 0;
  // Whether `text` has to be UTF-8. Other patterns take a byte that is none for a symbol.
  virtual bool needs_utf8() const { return false; }
};

// The pattern of the regular expression `expression`, in the syntax of Oniguruma, as in a tokenizer.json. Throws
// UserError, with `source` in front, where it is none.
std::unique_ptr<WordPattern> word_pattern(const std::string& expression, const std::string& source);

// Words are single numeric characters and what lies between them, or runs of either.
std::unique_ptr<WordPattern> digit_pattern(bool each_digit);

// Whether word_pattern() knows this expression. Such a one matches every character of any text.
bool is_known_word_pattern(std::string_view expression);

// The known ones. GPT-2's is also that of tiktoken's r50k_base and p50k_base. Tiktoken writes the same patterns
// otherwise, for another regular expression engine.
extern const std::string_view kGpt2Pattern, kLlama3Pattern, kCl100kPattern, kO200kPattern;

// Through PCRE2, whether it is known or not: word_pattern() falls back to it, tests compare with it.
std::unique_ptr<WordPattern> regex_word_pattern(const std::string& expression, const std::string& source);

}  // namespace filigree
