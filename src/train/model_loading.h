// Opens a trained model for use: a run's folder (its newest checkpoint) or one checkpoint.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "model/transformer.h"
#include "text/tokenizer.h"
#include "train/checkpoint.h"

namespace filigree {

struct LoadedModel {
  Config config;
  std::filesystem::path checkpoint;
  std::int64_t step = 0;
  std::unique_ptr<Tokenizer> tokenizer;  // null when the run had none
  std::unique_ptr<Transformer> model;    // for inference; adapters loaded where the checkpoint has them
};

// The checkpoint folder behind a path, absolute. Throws UserError saying what is missing.
std::filesystem::path find_checkpoint(const std::filesystem::path& run_or_checkpoint);

// overrides: "key=value" on the checkpoint's configuration, e.g. run.precision.
LoadedModel load_model(Device& device, const std::filesystem::path& run_or_checkpoint,
                       std::span<const std::string> overrides);

// The configuration that a checkpoint carries, with `overrides`.
Config checkpoint_config(const std::filesystem::path& checkpoint, std::span<const std::string> overrides);

}  // namespace filigree
