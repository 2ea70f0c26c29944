#include "io/tokenizer_rule.h"

#include <charconv>
#include <system_error>

namespace filigree {
namespace {

constexpr std::string_view kTrain = "spm:";

}  // namespace

bool is_sentencepiece_rule(std::string_view text) {
  return text.starts_with(kTrain);
}

std::optional<std::int64_t> sentencepiece_vocab(std::string_view text) {
  if (!is_sentencepiece_rule(text)) return std::nullopt;
  const std::string_view digits = text.substr(kTrain.size());
  std::int64_t vocab = 0;
  const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), vocab);
  if (error != std::errc() || stop != digits.data() + digits.size() || digits.front() == '0') return std::nullopt;
  if (vocab < kSmallestSentencePieceVocab || vocab > kLargestSentencePieceVocab) return std::nullopt;
  return vocab;
}

}  // namespace filigree
