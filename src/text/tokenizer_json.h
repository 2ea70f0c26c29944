// tokenizer.json, the file of Hugging Face's tokenizers, as far as it holds byte-level BPE: what GPT-2, LLaMA 3 and
// most others have. Read is everything that decides which ids text gets:
//
//   model           BPE; ignore_merges is followed, dropout, unknown-piece and affix settings must be empty
//   pre_tokenizer   ByteLevel, or a Sequence of Split, Digits and ByteLevel
//   added_tokens    as byte_pair_tokenizer.h says
//   normalizer      must be empty
//
// What works on whole sequences (post_processor, truncation, padding) is not applied. A part that is not known is an
// error that names it: ids would silently be others.
//
// End-of-text is the special token <|endoftext|>, else <|end_of_text|>, </s> or <eos>, else one id appended.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/tokenizer.h"

namespace filigree {

// `json` is the file's text; `source` names it in messages. Throws UserError.
std::unique_ptr<Tokenizer> parse_tokenizer_json(std::string json, const std::string& source);

// The tokenizer.json of GPT-2's two files, vocab.json and merges.txt. Throws UserError where one is damaged.
std::string gpt2_tokenizer_json(const std::string& vocab_json, std::string_view merges_txt, const std::string& source);

// What write_tokenizer_json() puts into a file.
struct TokenizerJsonParts {
  std::vector<std::string> tokens;                          // by id: bytes; "" where there is none, or a special one
  std::vector<std::pair<std::string, std::string>> merges;  // by rank: bytes
  std::vector<std::pair<std::string, std::int32_t>> special;
  std::string_view pattern;  // that cuts text into words; "": none does
  bool whole_words = false;
};

std::string write_tokenizer_json(const TokenizerJsonParts& parts);

// The tokenizer_config.json beside it; `end_of_text` is "" where that token has no name.
std::string huggingface_tokenizer_config(std::string_view end_of_text);

}  // namespace filigree
