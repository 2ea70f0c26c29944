// What [data] of a configuration means: which files of tokens a run reads, and the tokenizer behind them.
//
// data.train and data.val are globs of token shards (.bin), data folders made by `filigree prepare`, or text (files,
// folders). Text is prepared into the run's own folder once; a resumed run finds it there.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "io/config.h"
#include "text/tokenizer.h"

namespace filigree {

struct TrainingData {
  std::vector<std::filesystem::path> train;    // token shards, in order
  std::vector<std::filesystem::path> val;      // empty where there is nothing to validate on
  std::shared_ptr<const Tokenizer> tokenizer;  // null: shards from elsewhere do not say what made them
  // Of the validation text, where it is known: what turns nats a token into bits a byte, and the loss that token
  // frequencies alone give; else 0.
  double val_bytes_per_token = 0.0;
  double val_unigram_entropy = 0.0;

  // The tokenizer's entries; 0 without one.
  std::int64_t vocab() const { return tokenizer ? tokenizer->vocab_size() : 0; }
};

struct TrainingDataOptions {
  std::filesystem::path run_folder;  // text is prepared into run_folder/data
  std::FILE* progress = nullptr;     // as in PrepareOptions
  std::function<bool()> stop;
  bool may_prepare = true;  // false: text that is not prepared yet is a UserError
  std::function<void(const std::filesystem::path&)> prepared = {};  // called with the folder that was prepared now
};

// Without data.val, a data folder's own validation shards are used, and of text a share is held out. Throws UserError
// naming the key where nothing matches, shards and text are mixed, or data.tokenizer is not the one of the shards.
TrainingData find_training_data(const DataConfig& config, const TrainingDataOptions& options);

// Entries of the tokenizer that this data has, or will have once it is prepared; 0 where shards do not say. Throws
// UserError where neither data.tokenizer nor the data is there.
std::int64_t tokenizer_entries(const DataConfig& config);

// The paths that match `pattern` (*, ?, [...]), sorted; the pattern itself where it is a path that exists. Folders that
// it begins with and that exist are taken as they are written, too: data [1]/train-*.bin finds the shards in "data
// [1]".
std::vector<std::filesystem::path> expand_glob(const std::string& pattern);

}  // namespace filigree
