#include "text/sentencepiece_tokenizer.h"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/error.h"
#include "text/tokenizer_json.h"
#include "text/utf8.h"

namespace filigree {
namespace {

constexpr std::string_view kSpacePiece = "\xE2\x96\x81";  // U+2581, the library's space

// Ids of words seen in the text that is being encoded, and limits to its memory: about 10 MB.
using WordCache = std::unordered_map<std::string_view, std::vector<std::int32_t>>;
constexpr std::size_t kLongestCachedWord = 64;
constexpr std::size_t kMostCachedWords = 1 << 16;

std::string byte_piece(unsigned value) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  return {'<', '0', 'x', kDigits[value >> 4], kDigits[value & 15], '>'};
}

class SentencePieceTokenizer final : public Tokenizer {
 public:
  SentencePieceTokenizer(std::string serialized, const std::string& source) : serialized_(std::move(serialized)) {
    const auto status = processor_.LoadFromSerializedProto(serialized_);
    if (!status.ok() || processor_.GetPieceSize() <= 0)
      throw UserError("tokenizer " + source + ": this is not a SentencePiece model");
    pieces_ = processor_.GetPieceSize();
    find_end_of_text();
    lossless_ = find_byte_pieces() && probe();
    words_apart_ = lossless_ && no_piece_joins_words();
  }

  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> ids;
    if (!lossless_) {
      append_library_ids(text, ids);
      return ids;
    }
    WordCache cache;
    std::size_t begin = 0;  // of text that the library encodes without loss
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t length = utf8_sequence_length(text, at);
      const bool special = length == 0 || text.substr(at, length) == kSpacePiece;
      const std::size_t step = std::max<std::size_t>(length, 1);
      if (special) {
        append_words(text.substr(begin, at - begin), cache, ids);
        for (std::size_t i = at; i < at + step; ++i) ids.push_back(byte_ids_[static_cast<unsigned char>(text[i])]);
        begin = at + step;
      }
      at += step;
    }
    append_words(text.substr(begin), cache, ids);
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

  TokenizerFiles huggingface_files() const override {
    const std::string name = end_of_text_ < pieces_ ? processor_.IdToPiece(end_of_text_) : "";
    return {{std::string(kTokenizerFile), serialized_}, {"tokenizer_config.json", huggingface_tokenizer_config(name)}};
  }

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

  // Whether the ids of two words do not depend on each other: no piece goes on behind a word into the space before the
  // next, or across a line end. So it is with all models trained here.
  bool no_piece_joins_words() const {
    for (std::int32_t id = 0; id < pieces_; ++id) {
      if (byte_values_[static_cast<std::size_t>(id)] >= 0 || processor_.IsControl(id) || processor_.IsUnknown(id))
        continue;
      std::string_view piece = processor_.IdToPiece(id);
      if (piece.size() > 1 && piece.find('\n') != std::string_view::npos) return false;
      while (piece.starts_with(kSpacePiece)) piece.remove_prefix(kSpacePiece.size());
      if (piece.find(kSpacePiece) != std::string_view::npos) return false;
    }
    return true;
  }

  // Text repeats its words: looking one up is several times faster than the library's merging of a whole text.
  void append_words(std::string_view text, WordCache& cache, std::vector<std::int32_t>& ids) const {
    if (!words_apart_) {
      append_library_ids(text, ids);
      return;
    }
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = word_end(text, begin);
      const std::string_view word = text.substr(begin, end - begin);
      begin = end;
      if (const auto known = cache.find(word); known != cache.end()) {
        ids.insert(ids.end(), known->second.begin(), known->second.end());
        continue;
      }
      const std::size_t before = ids.size();
      append_library_ids(word, ids);
      if (word.size() <= kLongestCachedWord && cache.size() < kMostCachedWords)
        cache.emplace(word, std::vector<std::int32_t>(ids.begin() + static_cast<std::ptrdiff_t>(before), ids.end()));
    }
  }

  // A word is a line end, or spaces with what follows them up to the next space or line end.
  static std::size_t word_end(std::string_view text, std::size_t begin) {
    if (text[begin] == '\n') return begin + 1;
    const std::size_t letters = std::min(text.find_first_not_of(' ', begin), text.size());
    return std::min(text.find_first_of(" \n", letters), text.size());
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
  bool words_apart_ = false;
  std::array<std::int32_t, 256> byte_ids_{};
  std::vector<std::int16_t> byte_values_;  // (pieces_) the byte that a piece stands for, or -1
};

}  // namespace

std::unique_ptr<Tokenizer> parse_sentencepiece(std::string serialized, const std::string& source) {
  return std::make_unique<SentencePieceTokenizer>(std::move(serialized), source);
}

}  // namespace filigree
