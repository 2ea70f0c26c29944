// Text to a data folder (data_info.h): what `filigree prepare` does, and `filigree train` with text.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "core/error.h"
#include "data/data_info.h"

namespace filigree {

struct PrepareOptions {
  std::vector<std::filesystem::path> text;      // files or folders
  std::vector<std::filesystem::path> val_text;  // validation text of its own; empty: a share of `text`
  std::string tokenizer;                        // "bytes", "spm:VOCAB" or a file
  std::filesystem::path out;                    // must not exist, its parent must
  double val_fraction = 0.05;                   // held out (split.h); unused with val_text
  std::int64_t shard_tokens = 100'000'000;      // most tokens in a file
  std::FILE* progress = nullptr;                // where progress is shown; null: nowhere
  std::function<bool()> stop;                   // asked often; true ends with Interrupted
};

// Equal text and options give equal files. Writes into a temporary folder beside `out` and renames it at the end:
// whatever is thrown, nothing is left behind. A tokenizer is trained on the training split, on an even sample of 64 MiB
// of it where it is longer. Throws UserError for the user's mistakes.
DataInfo prepare(const PrepareOptions& options);

}  // namespace filigree
