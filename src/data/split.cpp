#include "data/split.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "text/utf8.h"

namespace filigree {
namespace {

constexpr std::uint64_t kSeed = 1;            // the choice depends on the text alone, not on a run's seed
constexpr std::uint32_t kStream = 1;          // apart from the order of training, which uses stream 0
constexpr std::int64_t kSearchWindow = 4096;  // bytes before the wanted cut that are searched for a line end
constexpr std::int64_t kLeastHeldOut = 16;    // bytes

}  // namespace

SplitRule::SplitRule(TextSize size, double fraction) : cut_(size.bytes) {
  require(fraction >= 0.0 && fraction <= 0.5, "the held-out share must be between 0 and 0.5");
  if (fraction == 0.0) return;
  const auto share = [&](std::int64_t whole) { return std::llround(fraction * static_cast<double>(whole)); };
  if (size.documents >= kManyDocuments) {
    val_documents_ = std::max<std::int64_t>(1, share(size.documents));
    order_.emplace(size.documents, Random(kSeed, RandomPurpose::shuffle, kStream));
    return;
  }
  val_bytes_ = std::max<std::int64_t>(share(size.bytes), std::min(kLeastHeldOut, size.bytes / 2));
  cut_ = size.bytes - val_bytes_;
}

Split SplitRule::of_document(std::int64_t document) const {
  return order_ && document < order_->size() && (*order_)(document) < val_documents_ ? Split::val : Split::train;
}

std::size_t SplitRule::cut(std::string_view text, std::int64_t begin) const {
  if (cut_ >= begin + static_cast<std::int64_t>(text.size()) || val_bytes_ == 0) return text.size();
  if (cut_ <= begin && begin > 0) return 0;
  const auto wanted = static_cast<std::size_t>(std::max<std::int64_t>(cut_ - begin, 0));
  // Validation at most doubles by the search.
  const auto window =
      static_cast<std::size_t>(std::min({kSearchWindow, val_bytes_, static_cast<std::int64_t>(wanted)}));
  const std::string_view before = text.substr(wanted - window, window);
  if (const std::size_t line_end = before.rfind('\n'); line_end != std::string_view::npos)
    return wanted - window + line_end + 1;
  if (const std::size_t space = before.rfind(' '); space != std::string_view::npos && wanted - window + space > 0)
    return wanted - window + space;
  const std::size_t boundary = utf8_boundary_before(text, wanted);
  if (boundary > 0 || begin > 0) return boundary;
  return std::max<std::size_t>(utf8_sequence_length(text, 0), 1);  // training text must not be empty
}

SplitReader::SplitReader(TextFiles text, std::optional<TextFiles> val_text, SplitRule rule)
    : text_(std::move(text)),
      val_text_(val_text ? std::make_unique<DocumentReader>(std::move(*val_text)) : nullptr),
      rule_(std::move(rule)) {}

std::int64_t SplitReader::position() const {
  return text_.position() + (val_text_ ? val_text_->position() : 0);
}

bool SplitReader::next(SplitPiece& out) {
  if (has_rest_) {
    has_rest_ = false;
    out = {std::move(rest_), Split::val, true};
    in_document_ = !out.piece.ends_document;
    return true;
  }
  if (!text_ended_ && !text_.next(out.piece)) text_ended_ = true;
  if (text_ended_) {
    if (!val_text_ || !val_text_->next(out.piece)) return false;
    out.split = Split::val;
  } else {
    const std::int64_t begin = offset_;
    offset_ += static_cast<std::int64_t>(out.piece.text.size());
    out.split = val_reached_ ? Split::val : rule_.of_document(document_);
    if (out.piece.ends_document) ++document_;
    const std::size_t cut = val_reached_ ? out.piece.text.size() : rule_.cut(out.piece.text, begin);
    if (cut < out.piece.text.size()) {
      val_reached_ = true;
      if (cut == 0) {
        out.split = Split::val;
        in_document_ = false;
      } else {
        rest_ = {out.piece.text.substr(cut), out.piece.ends_document};
        has_rest_ = true;
        out.piece.text.resize(cut);
        out.piece.ends_document = false;
      }
    }
  }
  out.begins_document = !in_document_;
  in_document_ = !out.piece.ends_document;
  return true;
}

}  // namespace filigree
