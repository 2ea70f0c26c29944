// SentencePiece models (Kudo and Richardson, EMNLP 2018) as tokenizers. No type of that library appears here.
//
// Models trained here lose nothing, decode(encode(x)) == x for any bytes: identity normalisation, no dummy prefix, no
// whitespace removal, byte fallback. Two cases that the library would change are encoded as byte pieces by us: bytes
// that are no UTF-8, and the character U+2581, which the library uses for the space. Line ends are always single byte
// pieces, so that text may be cut after a line end without changing its ids.
//
// A model from elsewhere keeps its own rules, lossy ones included; whether it is lossless is found by a probe when it
// is loaded. Its end-of-text is its piece "<|endoftext|>", else its </s>, else one id appended to the vocabulary.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "text/tokenizer.h"

namespace filigree {

// Trains BPE with exactly `vocab` pieces: ids 0 <unk>, 1 <|endoftext|>, 2-257 the bytes, then merges by rank and
// characters. Deterministic: one thread, all lines in order. Lines that are not UTF-8 are
// left out. Throws UserError when the text is too small or has too many different characters for `vocab`, naming the
// largest or smallest size that would do.
std::unique_ptr<Tokenizer> train_sentencepiece(std::int64_t vocab, const LineSource& lines);

// A serialized model; `source` names it in messages. Throws UserError where it is none.
std::unique_ptr<Tokenizer> parse_sentencepiece(std::string serialized, const std::string& source);

}  // namespace filigree
