// The vocabulary of a configuration that leaves it to the tokenizer.
#pragma once

#include <string>

#include "data/training_data.h"
#include "io/model_presets.h"

namespace filigree {

// What training will take. `path`: of the configuration, for the message.
inline std::int64_t planned_vocab(const DataConfig& data, const std::string& path) {
  std::string reason = "the shards of data.train do not say what made them";
  try {
    if (const std::int64_t entries = tokenizer_entries(data); entries > 0) return padded_vocab(entries);
  } catch (const UserError& error) {
    reason = error.what();
  }
  throw UserError(path + ": model.vocab is not given, and the data does not tell it (" + reason +
                  "); add --set model.vocab=NUMBER");
}

}  // namespace filigree
