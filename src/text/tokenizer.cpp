#include "text/tokenizer.h"

#include <cstdio>
#include <optional>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "io/atomic_file.h"
#include "io/tokenizer_rule.h"
#include "text/sentencepiece_tokenizer.h"
#include "text/tiktoken_tokenizer.h"
#include "text/tokenizer_json.h"

namespace filigree {
namespace {

constexpr std::string_view kBytesFile = "filigree byte tokenizer, version 1\n";
constexpr std::int32_t kByteEndOfText = 256;
// Real models have a few MB; what is larger is some other file.
constexpr std::uint64_t kLargestTokenizerFile = 256u << 20;

// Bytes as byte-pair encoding without merges.
std::string byte_tokenizer_json() {
  TokenizerJsonParts parts;
  for (int byte = 0; byte < 256; ++byte) parts.tokens.emplace_back(1, static_cast<char>(byte));
  parts.special.emplace_back(kEndOfTextMarker, kByteEndOfText);
  return write_tokenizer_json(parts);
}

class BytesTokenizer final : public Tokenizer {
 public:
  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> ids(text.size());
    for (std::size_t i = 0; i < text.size(); ++i) ids[i] = static_cast<unsigned char>(text[i]);
    return ids;
  }

  std::string decode(std::span<const std::int32_t> ids) const override {
    std::string text;
    text.reserve(ids.size());
    for (const std::int32_t id : ids) {
      if (id < 0 || id > kByteEndOfText) throw Error("decode: id " + std::to_string(id) + " is not below 257");
      if (id != kByteEndOfText) text += static_cast<char>(id);
    }
    return text;
  }

  std::int64_t vocab_size() const override { return kByteEndOfText + 1; }
  std::int32_t end_of_text() const override { return kByteEndOfText; }
  std::string name() const override { return "bytes"; }
  std::string serialize() const override { return std::string(kBytesFile); }

  TokenizerFiles huggingface_files() const override {
    return {{"tokenizer.json", byte_tokenizer_json()},
            {"tokenizer_config.json", huggingface_tokenizer_config(kEndOfTextMarker)}};
  }
};

// FNV-1a, 64 bits: tells tokenizers apart, protects against nothing.
std::uint64_t hash_of(std::string_view bytes) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

}  // namespace

std::string Tokenizer::identity() const {
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash_of(serialize())));
  return name() + "-" + digits;
}

void Tokenizer::save(const std::filesystem::path& path) const {
  write_file_atomically(path, serialize());
}

void Tokenizer::write_huggingface_files(const std::filesystem::path& folder) const {
  for (const auto& [name, contents] : huggingface_files()) write_file_atomically(folder / name, contents);
}

TokenizerSpec parse_tokenizer_spec(const std::string& spec) {
  if (spec.empty())
    throw UserError("no tokenizer named: use bytes, spm:VOCAB_SIZE (e.g. spm:4096) or the path of a file");
  if (spec == "bytes") return {};
  TokenizerSpec result;
  if (!is_sentencepiece_rule(spec)) {
    result.kind = TokenizerSpec::Kind::file;
    result.file = spec;
    return result;
  }
  result.kind = TokenizerSpec::Kind::train_sentencepiece;
  const std::optional<std::int64_t> vocab = sentencepiece_vocab(spec);
  if (!vocab)
    throw UserError("tokenizer \"" + spec + "\": the vocabulary size after spm: must be a number from " +
                    std::to_string(kSmallestSentencePieceVocab) + " (the bytes and three more) to " +
                    std::to_string(kLargestSentencePieceVocab) + ", e.g. spm:4096");
  result.vocab = *vocab;
  return result;
}

std::unique_ptr<Tokenizer> bytes_tokenizer() {
  return std::make_unique<BytesTokenizer>();
}

std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerSpec& spec, const LineSource& lines) {
  switch (spec.kind) {
    case TokenizerSpec::Kind::bytes:
      return bytes_tokenizer();
    case TokenizerSpec::Kind::train_sentencepiece:
      return train_sentencepiece(spec.vocab, lines);
    case TokenizerSpec::Kind::file:
      return load_tokenizer(spec.file);
  }
  throw Error("unknown kind of tokenizer");
}

namespace {

// The files of a folder by which a tokenizer is found there, the first of them that exists.
std::unique_ptr<Tokenizer> load_from_folder(const std::filesystem::path& folder) {
  const auto holds = [&](std::string_view name) {
    std::error_code error;
    return std::filesystem::exists(folder / name, error);
  };
  for (const std::string_view name : {kTokenizerFile, std::string_view("tokenizer.json")})
    if (holds(name)) return load_tokenizer(folder / name);
  for (const auto& [vocab, merges] : {std::pair("vocab.json", "merges.txt"), std::pair("encoder.json", "vocab.bpe")})
    if (holds(vocab) && holds(merges))
      return parse_tokenizer_json(
          gpt2_tokenizer_json(read_file(folder / vocab, kLargestTokenizerFile),
                              read_file(folder / merges, kLargestTokenizerFile), folder.string()),
          folder.string());
  throw UserError(folder.string() + ": this folder holds no " + std::string(kTokenizerFile) +
                  ", tokenizer.json, or vocab.json with merges.txt");
}

}  // namespace

std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return load_from_folder(path);
  if (!std::filesystem::exists(path, error))
    throw UserError("tokenizer " + path.string() +
                    ": there is no such file (a tokenizer is bytes, spm:VOCAB_SIZE or the path of a file or folder)");
  std::string bytes = read_file(path, kLargestTokenizerFile);
  if (is_tiktoken(bytes)) bytes = named_tiktoken(std::move(bytes), path.filename().string(), path.string());
  return parse_tokenizer(std::move(bytes), path.string());
}

std::unique_ptr<Tokenizer> parse_tokenizer(std::string serialized, const std::string& source) {
  if (serialized.empty()) throw UserError("tokenizer " + source + ": the file is empty");
  if (serialized == kBytesFile) return bytes_tokenizer();
  if (serialized.starts_with("#version"))
    throw UserError("tokenizer " + source + ": this is a merges.txt; name the folder that holds it and vocab.json");
  if (is_tiktoken(serialized)) return parse_tiktoken(std::move(serialized), source);
  const std::size_t begin = serialized.find_first_not_of(" \t\r\n");
  if (begin != std::string::npos && serialized[begin] == '{')
    // What was exported of bytes is bytes again: data made with them knows them by that name.
    return serialized == byte_tokenizer_json() ? bytes_tokenizer()
                                               : parse_tokenizer_json(std::move(serialized), source);
  return parse_sentencepiece(std::move(serialized), source);
}

}  // namespace filigree
