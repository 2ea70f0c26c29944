// data.json: what a data folder says about itself. The folder, made by prepare():
//
//   train-000000.bin ...   token shards (io/shards/token_shards.h), documents each followed by end-of-text
//   val-000000.bin ...     absent when nothing was held out
//   tokenizer.model        the tokenizer that made them
//   data.json              this
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace filigree {

inline constexpr std::string_view kDataInfoFile = "data.json";

struct SplitInfo {
  std::int64_t documents = 0;  // a document that is cut between the splits counts in both
  std::int64_t bytes = 0;      // of text, without separators: what bits per byte divide by
  std::int64_t tokens = 0;     // with one end-of-text a document
  std::int64_t shards = 0;

  friend bool operator==(const SplitInfo&, const SplitInfo&) = default;
};

struct DataInfo {
  std::string tokenizer;  // identity
  std::int64_t vocab = 0;
  SplitInfo train, val;
  double val_unigram_entropy = 0.0;  // nats: the loss of a model that knows the validation tokens' frequencies alone
  std::string tokenizer_spec;        // as the user gave it
  double val_fraction = 0.0;         // as the user gave it
  std::vector<std::string> sources;  // as the user gave them
  std::vector<std::string> val_sources;
  std::int64_t source_bytes = -1;  // of all of them on disk; -1: written before this was known

  friend bool operator==(const DataInfo&, const DataInfo&) = default;
};

void write_data_info(const std::filesystem::path& folder, const DataInfo& info);

// Throws UserError naming the file where it is missing, no JSON, or a value is missing or out of range.
DataInfo read_data_info(const std::filesystem::path& folder);

// The folder's files of "train" or "val", in order: those that data.json counts. Throws UserError where one is missing.
std::vector<std::filesystem::path> shard_paths(const std::filesystem::path& folder, std::string_view split);

// "train-000012.bin"
std::string shard_name(std::string_view split, std::int64_t index);

}  // namespace filigree
