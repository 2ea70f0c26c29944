// Byte-pair encoding over bytes, as GPT-2 (Radford et al., 2019) and most models after it have: text is cut into words,
// and the bytes of each are merged. No byte is ever unknown and none is changed, so that decode(encode(x)) == x for any
// bytes (but for a space in front where the tokenizer asks for one). A byte that is no UTF-8 is cut off like a symbol.
//
// Special tokens, <|endoftext|> among them, never come from text: written there, they are encoded as any other words.
// Other added tokens are found in the text before it is cut into words.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/byte_pair_merges.h"
#include "text/tokenizer.h"
#include "text/word_pattern.h"

namespace filigree {

// No tokenizer in use has a quarter of these ids; tables are as long as the largest one.
inline constexpr std::int64_t kLargestVocabulary = 1 << 21;

struct BytePairVocabulary {
  std::vector<std::string> tokens;  // by id: its bytes; "" where no token has this id
  BytePairMerges merges;
  bool whole_words = false;   // a word that is a token is not merged
  bool prefix_space = false;  // a space is put in front of text that begins with none
  std::vector<std::int32_t> special;
  // Added tokens that are not special: those that are looked for first, and those in what is between them then.
  std::vector<std::vector<std::int32_t>> added;
  std::int32_t end_of_text = 0;  // a special one
};

// `serialized` is what serialize() returns, and `tokenizer_json` makes the tokenizer.json of huggingface_files() from
// it. Throws UserError, with `source` in front, where a byte has no token.
std::unique_ptr<Tokenizer> byte_pair_tokenizer(BytePairVocabulary vocabulary,
                                               std::vector<std::unique_ptr<WordPattern>> patterns,
                                               std::string serialized,
                                               std::string (*tokenizer_json)(const std::string& serialized),
                                               const std::string& source);

}  // namespace filigree
