// A tokenizer in a Hugging Face folder.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace filigree {

// Writes what tells transformers the tokenizer into `folder`: the files in `kept` (the model came with them), else
// those that the tokenizer makes of itself. That there is none is added to `notes`. kept: may be empty. tokenizer: may
// be null.
void write_hub_tokenizer(const std::filesystem::path& folder, const std::filesystem::path& kept,
                         const Tokenizer* tokenizer, std::vector<std::string>& notes);

// generation_config.json: the kept one, else where a text ends.
void write_generation_config(const std::filesystem::path& folder, const std::filesystem::path& kept,
                             const Tokenizer* tokenizer);

}  // namespace filigree
