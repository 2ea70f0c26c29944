#include <sentencepiece_trainer.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/error.h"
#include "text/sentencepiece_tokenizer.h"
#include "text/utf8.h"

namespace filigree {
namespace {

constexpr std::string_view kSpacePiece = "\xE2\x96\x81";    // U+2581, the library's space
constexpr std::string_view kReservedText = "\xE2\x96\x85";  // U+2585: the trainer drops lines that contain it
constexpr double kCharacterCoverage = 0.9995;               // rarer characters stay byte pieces
constexpr std::int64_t kFixedPieces = 2 + 256;              // <unk>, end-of-text, the bytes
constexpr std::size_t kLongestLine = 4096;                  // the trainer drops longer ones (limit 4192)

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
  std::unique_ptr<Tokenizer> tokenizer = parse_sentencepiece(std::move(serialized), spec);
  if (tokenizer->vocab_size() != vocab)
    throw UserError(spec + ": the text is too small for " + std::to_string(vocab) +
                    " pieces; the largest size that would do is spm:" + std::to_string(tokenizer->vocab_size()) +
                    " (bytes always works)");
  return tokenizer;
}

}  // namespace filigree
