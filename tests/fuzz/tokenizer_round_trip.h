// What every byte-level tokenizer promises, whatever file it comes from.
#pragma once

#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace filigree::fuzzing {

// Ends the process where a text does not come back, or yields end-of-text or an id that is none.
inline void check_round_trip(const Tokenizer& tokenizer, bool may_add_space) {
  const std::string text = "  It's the text,\n\t caf\xC3\xA9 12345 aaaaa \xFF\xE2\x82 <|endoftext|> \r\n ";
  const std::vector<std::int32_t> ids = tokenizer.encode(text);
  for (const std::int32_t id : ids)
    if (id < 0 || id >= tokenizer.vocab_size() || id == tokenizer.end_of_text()) std::abort();
  const std::string decoded = tokenizer.decode(ids);
  if (decoded != text && !(may_add_space && decoded == " " + text)) std::abort();
  std::vector<std::int32_t> all(static_cast<std::size_t>(tokenizer.vocab_size()));
  std::iota(all.begin(), all.end(), 0);
  tokenizer.decode(all);
  tokenizer.huggingface_files();
}

}  // namespace filigree::fuzzing
