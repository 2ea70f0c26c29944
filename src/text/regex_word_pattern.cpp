// Word patterns through PCRE2, as UTF-8 with Unicode's properties, its newline LF and ^ and $ at line ends, as in
// Oniguruma, whose syntax the expressions in a tokenizer.json have.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <memory>
#include <string>

#include "core/error.h"
#include "text/utf8.h"
#include "text/word_pattern.h"

namespace filigree {
namespace {

constexpr std::size_t kLongestExpression = 4096;
// Steps of backtracking in one match before it is given up: what tokenizers use needs a few.
constexpr std::uint32_t kMatchLimit = 1'000'000;

std::string library_message(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

// {1,3}+ repeats a repetition in Oniguruma and forbids backtracking in PCRE2. Not meant are \p{L}+ and \x{41}+.
bool has_possessive_interval(std::string_view expression) {
  for (std::size_t end = expression.find("}+"); end != std::string_view::npos; end = expression.find("}+", end + 1)) {
    const std::size_t begin = expression.find_last_not_of("0123456789,", end - 1);
    if (begin == std::string_view::npos || expression[begin] != '{') continue;
    if (begin < 2 || expression[begin - 2] != '\\' || expression[begin - 1] != 'x') return true;
  }
  return false;
}

template <auto Free>
struct Freed {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
using Code = std::unique_ptr<pcre2_code, Freed<pcre2_code_free>>;
using CompileContext = std::unique_ptr<pcre2_compile_context, Freed<pcre2_compile_context_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Freed<pcre2_match_context_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Freed<pcre2_match_data_free>>;

class RegexPattern final : public WordPattern {
 public:
  RegexPattern(const std::string& expression, const std::string& source)
      : where_(source + ": the pattern " + expression), limits_(pcre2_match_context_create(nullptr)) {
    require_user(expression.size() <= kLongestExpression, source + ": a pattern has " +
                                                              std::to_string(expression.size()) + " bytes; at most " +
                                                              std::to_string(kLongestExpression) + " are read");
    // \h is a hexadecimal digit in Oniguruma, white space in PCRE2; \K, \G and \C would make words that overlap, depend
    // on the one before or end within a character.
    for (std::size_t at = 0; at + 1 < expression.size(); at += expression[at] == '\\' ? 2 : 1)
      if (expression[at] == '\\' && std::string_view("hHKGC").find(expression[at + 1]) != std::string_view::npos)
        throw UserError(where_ + ": \\" + expression[at + 1] + " is not supported");
    require_user(!has_possessive_interval(expression),
                 where_ + ": + behind an interval such as {1,3} is not supported");
    const CompileContext context(pcre2_compile_context_create(nullptr));
    require(context && limits_, "PCRE2 has no memory");
    pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
    pcre2_set_match_limit(limits_.get(), kMatchLimit);
    int error = 0;
    PCRE2_SIZE at = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(),
                              PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &at,
                              context.get()));
    require_user(code_ != nullptr, where_ + ": " + library_message(error) + " at byte " + std::to_string(at));
    // Only faster: without it, where a system forbids code made at run time, matching is interpreted.
    pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);
  }

  std::size_t word_end(std::string_view text, std::size_t begin) const override {
    const MatchData found(pcre2_match_data_create(1, nullptr));
    require(found != nullptr, "PCRE2 has no memory");
    for (std::size_t from = begin; from < text.size();) {
      const int count = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                                    PCRE2_NO_UTF_CHECK, found.get(), limits_.get());
      if (count == PCRE2_ERROR_NOMATCH) return text.size();
      require_user(count >= 0, where_ + ": " + library_message(count));
      const PCRE2_SIZE* const span = pcre2_get_ovector_pointer(found.get());
      if (span[0] > begin) return span[0];  // a gap before the match
      if (span[1] > begin) return span[1];
      from += utf8_sequence_length(text, from);  // an empty match cuts nothing
    }
    return text.size();
  }

  bool needs_utf8() const override { return true; }

 private:
  std::string where_;
  MatchContext limits_;
  Code code_;
};

}  // namespace

std::unique_ptr<WordPattern> regex_word_pattern(const std::string& expression, const std::string& source) {
  return std::make_unique<RegexPattern>(expression, source);
}

}  // namespace filigree
