#include "text/sentencepiece_tokenizer.h"

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <array>
#include <exception>
#include <functional>
#include <unordered_map>
#include <utility>

#include "core/error.h"
#include "text/utf8.h"

namespace filigree {
namespace {

constexpr std::string_view kSpacePiece = "\xE2\x96\x81";    // U+2581, the library's space
constexpr std::string_view kReservedText = "\xE2\x96\x85";  // U+2585: the trainer drops lines that contain it
constexpr double kCharacterCoverage = 0.9995;               // rarer characters stay byte pieces
constexpr std::int64_t kFixedPieces = 2 + 256;              // <unk>, end-of-text, the bytes
constexpr std::size_t kLongestLine = 4096;                  // the trainer drops longer ones (limit 4192)

std::string byte_piece(unsigned value) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  return {'<', '0', 'x', kDigits[value >> 4], kDigits[value & 15], '>'};
}

// Hands lines to the trainer and counts their characters.
class TrainingLines final : public sentencepiece::SentenceIterator {
 public:
  explicit TrainingLines(const LineSource& lines) : lines_(lines) { advance(); }

  bool done() const override { return done_; }
  void Next() override { advance(); }
  const std::string& value() const override { return current_; }
  sentencepiece::util::Status status() const override { return {}; }

  // What the source threw: it must not pass through the library.
  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }
  bool any() const { return !characters_.empty(); }

  // Characters that the trainer gives a piece of their own: the space, and the most frequent others up to the coverage.
  std::int64_t required_characters() const {
    std::vector<std::int64_t> counts;
    std::int64_t total = 0, covered = 0, required = 0;
    for (const auto& [character, count] : characters_) {
      if (character != " ") counts.push_back(count);
      total += count;
    }
    std::sort(counts.begin(), counts.end(), std::greater<>());
    counts.insert(counts.begin(), characters_.at(" "));
    for (const std::int64_t count : counts) {
      if (static_cast<double>(covered) >= kCharacterCoverage * static_cast<double>(total)) break;
      covered += count;
      ++required;
    }
    return required;
  }

 private:
  void advance() {
    try {
      do {
        if (next_cut_ >= line_.size()) {
          next_cut_ = 0;
          if (!lines_(line_)) {
            end();
            return;
          }
        }
        current_ = take();
      } while (current_.empty() || current_.find(kReservedText) != std::string::npos ||
               utf8_first_invalid(current_) < current_.size());
      count_characters();
    } catch (...) {
      failure_ = std::current_exception();
      done_ = true;
    }
  }

  // The space has a piece in every model, and the trainer ends the process where a required piece occurs nowhere: a
  // text without spaces gets a line that is one.
  void end() {
    done_ = !any() || characters_.contains(" ");
    current_.assign(1, ' ');
    if (!done_) count_characters();
  }

  // The next part of line_, at most kLongestLine bytes, cut before a space where there is one.
  std::string take() {
    const std::string_view rest = std::string_view(line_).substr(next_cut_);
    std::size_t length = rest.size();
    if (length > kLongestLine) {
      const std::size_t space = rest.rfind(' ', kLongestLine);
      length = space == std::string_view::npos || space == 0 ? utf8_boundary_before(rest, kLongestLine) : space;
    }
    next_cut_ += length;
    return std::string(rest.substr(0, length));
  }

  void count_characters() {
    for (std::size_t at = 0; at < current_.size();) {
      const std::size_t length = utf8_sequence_length(current_, at);
      ++characters_[current_.substr(at, length)];
      at += length;
    }
  }

  const LineSource& lines_;
  std::string line_, current_;
  std::size_t next_cut_ = 0;
  bool done_ = false;
  std::exception_ptr failure_;
  std::unordered_map<std::string, std::int64_t> characters_;
};

class SentencePieceTokenizer final : public Tokenizer {
 public:
  SentencePieceTokenizer(std::string serialized, const std::string& source) : serialized_(std::move(serialized)) {
    const auto status = processor_.LoadFromSerializedProto(serialized_);
    if (!status.ok() || processor_.GetPieceSize() <= 0)
      throw UserError("tokenizer " + source + ": this is not a SentencePiece model");
    pieces_ = processor_.GetPieceSize();
    find_end_of_text();
    lossless_ = find_byte_pieces() && probe();
  }

  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> ids;
    if (!lossless_) {
      append_library_ids(text, ids);
      return ids;
    }
    std::size_t begin = 0;  // of text that the library encodes without loss
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t length = utf8_sequence_length(text, at);
      const bool special = length == 0 || text.substr(at, length) == kSpacePiece;
      const std::size_t step = std::max<std::size_t>(length, 1);
      if (special) {
        append_library_ids(text.substr(begin, at - begin), ids);
        for (std::size_t i = at; i < at + step; ++i) ids.push_back(byte_ids_[static_cast<unsigned char>(text[i])]);
        begin = at + step;
      }
      at += step;
    }
    append_library_ids(text.substr(begin), ids);
    return ids;
  }

  std::string decode(std::span<const std::int32_t> ids) const override {
    std::string text;
    std::vector<int> plain;  // for the library: without end-of-text
    for (const std::int32_t id : ids) {
      if (id < 0 || id >= vocab_size())
        throw Error("decode: id " + std::to_string(id) + " is not below " + std::to_string(vocab_size()));
      if (id == end_of_text_) continue;
      if (lossless_)
        append_piece(id, text);
      else
        plain.push_back(id);
    }
    if (!lossless_) require(processor_.Decode(plain, &text).ok(), "SentencePiece cannot decode these ids");
    return text;
  }

  std::int64_t vocab_size() const override { return std::max<std::int64_t>(pieces_, end_of_text_ + 1); }
  std::int32_t end_of_text() const override { return end_of_text_; }
  std::string name() const override { return "spm:" + std::to_string(vocab_size()); }
  std::string serialize() const override { return serialized_; }

 private:
  void find_end_of_text() {
    const std::int32_t named = processor_.PieceToId(kEndOfTextMarker);
    if (named >= 0 && named < pieces_ && processor_.IdToPiece(named) == kEndOfTextMarker)
      end_of_text_ = named;
    else if (processor_.eos_id() >= 0 && processor_.eos_id() < pieces_)
      end_of_text_ = processor_.eos_id();
    else
      end_of_text_ = pieces_;
  }

  bool find_byte_pieces() {
    for (unsigned value = 0; value < 256; ++value) {
      const std::int32_t id = processor_.PieceToId(byte_piece(value));
      if (id < 0 || id >= pieces_ || !processor_.IsByte(id)) return false;
      byte_ids_[value] = id;
    }
    byte_values_.assign(static_cast<std::size_t>(pieces_), -1);
    for (unsigned value = 0; value < 256; ++value)
      byte_values_[static_cast<std::size_t>(byte_ids_[value])] = static_cast<std::int16_t>(value);
    return true;
  }

  // Whether text survives that normalisation, dummy prefixes and whitespace removal would change. The sample has
  // double, leading and trailing white space, a ligature, a full-width letter and a decomposed accent.
  bool probe() {
    const std::string sample = "  a  b\t c \n\n \xEF\xAC\x81 \xEF\xBC\xA1 e\xCC\x81 \r\n 12 ";
    lossless_ = true;
    return decode(encode(sample)) == sample;
  }

  void append_library_ids(std::string_view text, std::vector<std::int32_t>& ids) const {
    if (text.empty()) return;
    std::vector<int> part;
    require(processor_.Encode(text, &part).ok(), "SentencePiece cannot encode this text");
    ids.insert(ids.end(), part.begin(), part.end());
  }

  void append_piece(std::int32_t id, std::string& text) const {
    if (const std::int16_t value = byte_values_[static_cast<std::size_t>(id)]; value >= 0) {
      text += static_cast<char>(value);
      return;
    }
    if (processor_.IsControl(id)) return;
    const std::string& piece = processor_.IdToPiece(id);
    for (std::size_t at = 0; at < piece.size();) {
      const bool space = piece.compare(at, kSpacePiece.size(), kSpacePiece) == 0;
      text += space ? ' ' : piece[at];
      at += space ? kSpacePiece.size() : 1;
    }
  }

  std::string serialized_;
  sentencepiece::SentencePieceProcessor processor_;
  std::int32_t pieces_ = 0;
  std::int32_t end_of_text_ = 0;
  bool lossless_ = false;
  std::array<std::int32_t, 256> byte_ids_{};
  std::vector<std::int16_t> byte_values_;  // (pieces_) the byte that a piece stands for, or -1
};

}  // namespace

std::unique_ptr<Tokenizer> train_sentencepiece(std::int64_t vocab, const LineSource& lines) {
  const std::string spec = "tokenizer spm:" + std::to_string(vocab);
  TrainingLines sentences(lines);
  sentences.rethrow();
  if (!sentences.any()) throw UserError(spec + ": there is no text to train it on");
  std::string serialized;
  // A soft limit gives the pieces that the text has, so that one training also finds the largest size that would do.
  // One thread, because the thread count is part of the model file.
  const auto status = sentencepiece::SentencePieceTrainer::Train(
      {{"model_type", "bpe"},
       {"vocab_size", std::to_string(vocab)},
       {"hard_vocab_limit", "false"},
       {"character_coverage", std::to_string(kCharacterCoverage)},
       {"required_chars", std::string(kSpacePiece)},
       {"byte_fallback", "true"},
       {"allow_whitespace_only_pieces", "true"},  // runs of spaces: indented text would be several times longer
       {"normalization_rule_name", "identity"},
       {"add_dummy_prefix", "false"},
       {"remove_extra_whitespaces", "false"},
       {"unk_id", "0"},
       {"eos_id", "1"},
       {"eos_piece", std::string(kEndOfTextMarker)},
       {"bos_id", "-1"},
       {"pad_id", "-1"},
       {"num_threads", "1"},
       {"minloglevel", "3"}},
      &sentences, &serialized);
  sentences.rethrow();
  if (!status.ok()) {
    const std::int64_t smallest = kFixedPieces + sentences.required_characters();
    if (smallest > vocab)
      throw UserError(spec + ": the text has too many different characters for " + std::to_string(vocab) +
                      " pieces; the smallest size that would do is spm:" + std::to_string(smallest));
    throw Error(spec + ": SentencePiece could not train: " + status.error_message());
  }
  auto tokenizer = std::make_unique<SentencePieceTokenizer>(std::move(serialized), spec);
  if (tokenizer->vocab_size() != vocab)
    throw UserError(spec + ": the text is too small for " + std::to_string(vocab) +
                    " pieces; the largest size that would do is spm:" + std::to_string(tokenizer->vocab_size()) +
                    " (bytes always works)");
  return tokenizer;
}

std::unique_ptr<Tokenizer> parse_sentencepiece(std::string serialized, const std::string& source) {
  return std::make_unique<SentencePieceTokenizer>(std::move(serialized), source);
}

}  // namespace filigree
