// The data of a run: token shards as they are, or text that is prepared into the run's folder first.
#pragma once

#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>

#include "data/data_info.h"
#include "data/dataset.h"
#include "io/config.h"
#include "text/tokenizer.h"

namespace filigree {

struct RunData {
  std::unique_ptr<Tokenizer> tokenizer;  // null: foreign shards without one
  std::int64_t vocab = 0;                // the tokenizer's, or model.vocab
  std::vector<std::filesystem::path> train_shards;
  std::vector<std::filesystem::path> val_shards;  // may be empty
  std::optional<DataInfo> info;          // of the data folder that holds the shards
  double val_bytes_per_token = 0.0;      // 0: unknown

  DatasetView train() const { return DatasetView(train_shards, vocab); }
  std::optional<DatasetView> val() const;
};

// Expands data.train and data.val and finds the tokenizer; throws UserError naming the key and the pattern that matches
// nothing, mixes shards with text, or does not go with data.tokenizer or model.vocab. Text is prepared into
// `run`/data, unless it is there already (a resumed run). Progress goes to `progress` when it is not null.
RunData open_run_data(const Config& config, const std::filesystem::path& run, std::FILE* progress);

}  // namespace filigree
