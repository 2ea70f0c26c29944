// Text cut into words by one pattern after another: each cuts the words of the one before.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/utf8.h"
#include "text/word_pattern.h"

namespace filigree {

class WordCutter {
 public:
  // Without patterns all text is one word.
  explicit WordCutter(std::vector<std::unique_ptr<WordPattern>> patterns) : patterns_(std::move(patterns)) {
    for (const auto& pattern : patterns_) needs_utf8_ = needs_utf8_ || pattern->needs_utf8();
  }

  // Calls use(word) for each word from left to right. The words are never empty and make up `text`.
  template <typename Use>
  void for_each_word(std::string_view text, const Use& use) const {
    if (needs_utf8_ && utf8_first_invalid(text) < text.size())
      cut_repaired(text, use);
    else
      cut(text, 0, use);
  }

 private:
  template <typename Use>
  void cut(std::string_view text, std::size_t pattern, const Use& use) const {
    if (pattern == patterns_.size()) {
      if (!text.empty()) use(text);
      return;
    }
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = patterns_[pattern]->word_end(text, begin);
      const std::string_view word = text.substr(begin, end - begin);
      if (pattern + 1 == patterns_.size())
        use(word);
      else
        cut(word, pattern + 1, use);
      begin = end;
    }
  }

  // Cuts a copy in which U+FFFD, a symbol, stands for each byte that is no UTF-8.
  template <typename Use>
  void cut_repaired(std::string_view text, const Use& use) const {
    constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
    std::string repaired;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t length = utf8_sequence_length(text, at);
      repaired += length == 0 ? kReplacement : text.substr(at, length);
      at += std::max<std::size_t>(length, 1);
    }
    std::size_t begin = 0;
    cut(repaired, 0, [&](std::string_view word) {
      std::size_t end = begin;
      for (std::size_t used = 0; used < word.size();) {
        const std::size_t length = utf8_sequence_length(text, end);
        used += length == 0 ? kReplacement.size() : length;
        end += std::max<std::size_t>(length, 1);
      }
      use(text.substr(begin, end - begin));
      begin = end;
    });
  }

  std::vector<std::unique_ptr<WordPattern>> patterns_;
  bool needs_utf8_ = false;
};

}  // namespace filigree
