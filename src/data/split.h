// What of a text is held out for validation, and reading text part by part with that decision.
//
// Many documents: a pseudo-random choice of whole ones, the same for the same text. Few: the end of the text, cut at a
// line or word near the wanted share, so that one long document is divided too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "data/permutation.h"
#include "text/documents.h"

namespace filigree {

enum class Split : std::uint8_t { train, val };

struct TextSize {
  std::int64_t documents = 0;
  std::int64_t bytes = 0;  // of text
};

// From this many documents on, whole ones are chosen.
inline constexpr std::int64_t kManyDocuments = 100;

class SplitRule {
 public:
  // Holds out the share `fraction`, 0 to 0.5. Every split with a share gets some text if there are two characters.
  SplitRule(TextSize size, double fraction);

  // By whole documents: which split `document` (from 0) is in. By bytes: Split::train.
  Split of_document(std::int64_t document) const;
  // By bytes: where, in a part of the text that begins at byte `begin`, validation begins; text.size() if not there.
  std::size_t cut(std::string_view text, std::int64_t begin) const;

 private:
  std::int64_t val_documents_ = 0;  // by whole documents
  std::optional<Permutation> order_;
  std::int64_t cut_, val_bytes_ = 0;  // by bytes: the wanted first byte of validation, and its length
};

struct SplitPiece {
  TextPiece piece;
  Split split = Split::train;
  bool begins_document = false;  // in this split
};

// Pieces of text with their split. The text in `val_text` is validation as a whole; then nothing of `text` is.
class SplitReader {
 public:
  SplitReader(TextFiles text, std::optional<TextFiles> val_text, SplitRule rule);

  bool next(SplitPiece& out);
  std::int64_t position() const;  // bytes on disk read so far

 private:
  DocumentReader text_;
  std::unique_ptr<DocumentReader> val_text_;
  SplitRule rule_;
  TextPiece rest_;  // the validation part of a piece that was cut
  bool has_rest_ = false;
  bool text_ended_ = false;
  bool val_reached_ = false;  // by bytes: all that follows is validation
  bool in_document_ = false;
  std::int64_t document_ = 0, offset_ = 0;
};

}  // namespace filigree
