// Text to token ids and back, behind one interface.
//
//   bytes        256 byte values and end-of-text (id 256), so 257 entries. Exact for any bytes, needs no training, and
//                makes a loss in nats a loss in bits per byte; sequences are three to four times longer than with
//                learned pieces. For tiny texts, tests and text in unknown encodings.
//   SentencePiece  learned pieces (BPE). Models trained here are lossless: see sentencepiece_tokenizer.h.
//   byte-level BPE  of GPT-2, LLaMA 3 and others, from Hugging Face's tokenizer.json, GPT-2's vocab.json and
//   merges.txt,
//                or tiktoken's rank files: see tokenizer_json.h, tiktoken_tokenizer.h. Exact for any bytes.
//
// A tokenizer is immutable; all functions may be called from several threads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace filigree {

// How the end of a document is written in text files, and what models trained here call its token.
inline constexpr std::string_view kEndOfTextMarker = "<|endoftext|>";

// The tokenizer's name inside a data folder or a run.
inline constexpr std::string_view kTokenizerFile = "tokenizer.model";

using TokenizerFiles = std::map<std::string, std::string>;  // contents by name

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Text never yields the end-of-text id, whatever it contains. "" gives no ids.
  virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;
  // End-of-text and other control ids decode to nothing. Throws Error for an id outside [0, vocab_size()).
  virtual std::string decode(std::span<const std::int32_t> ids) const = 0;

  virtual std::int64_t vocab_size() const = 0;
  virtual std::int32_t end_of_text() const = 0;
  virtual std::string name() const = 0;       // "bytes", "spm:4096"
  virtual std::string serialize() const = 0;  // what save() writes; load_tokenizer() reads it back
  // The files by which a Hugging Face folder has this tokenizer.
  virtual TokenizerFiles huggingface_files() const = 0;

  // Name and a hash of serialize(): equal only where two tokenizers give the same ids.
  std::string identity() const;
  // Complete or not at all.
  void save(const std::filesystem::path& path) const;
  // huggingface_files(), each complete or not at all, into a folder that exists.
  void write_huggingface_files(const std::filesystem::path& folder) const;
};

// The next line of training text without its line end; false at the end of the text.
using LineSource = std::function<bool(std::string& line)>;

// What the user writes for a tokenizer: "bytes", "spm:VOCAB" (train one) or the path of a file or folder.
struct TokenizerSpec {
  enum class Kind : std::uint8_t { bytes, train_sentencepiece, file };
  Kind kind = Kind::bytes;
  std::int64_t vocab = 0;      // train_sentencepiece
  std::filesystem::path file;  // file; may be a folder
};

// Throws UserError where `spec` is none of the three.
TokenizerSpec parse_tokenizer_spec(const std::string& spec);

std::unique_ptr<Tokenizer> bytes_tokenizer();

// Makes what `spec` says; `lines` is read only to train.
std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerSpec& spec, const LineSource& lines);

// A file written by save(), a SentencePiece model, a tokenizer.json, a rank file of tiktoken, or a folder that holds
// tokenizer.model, tokenizer.json, or vocab.json and merges.txt. Throws UserError.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path);

// As load_tokenizer, from the file's bytes; `source` names them in messages.
std::unique_ptr<Tokenizer> parse_tokenizer(std::string serialized, const std::string& source);

}  // namespace filigree
