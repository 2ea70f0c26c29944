// How configurations and command lines name a tokenizer that is no file: "bytes", or "spm:VOCAB" for one to be trained.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace filigree {

// Every SentencePiece model that is trained here holds <unk>, <|endoftext|>, the 256 bytes and the space. More pieces
// than the largest size take longer to train than any model is worth.
inline constexpr std::int64_t kSmallestSentencePieceVocab = 259;
inline constexpr std::int64_t kLargestSentencePieceVocab = 1'000'000;

// Whether `text` asks for training, in whatever form: "spm:...".
bool is_sentencepiece_rule(std::string_view text);
// VOCAB of "spm:VOCAB", a decimal number without sign or leading zeros between the two sizes above; nothing for any
// other text.
std::optional<std::int64_t> sentencepiece_vocab(std::string_view text);

}  // namespace filigree
