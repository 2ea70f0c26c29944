// A Hugging Face folder as what a model can be loaded from.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "io/hub/hub_weights.h"
#include "sparsity/linear_weight.h"
#include "text/tokenizer.h"

namespace filigree {

class HubSource final : public CheckpointSource {
 public:
  // Throws UserError where the folder is no model that filigree has; see hub_config.h and hub_weights.h.
  explicit HubSource(const std::filesystem::path& folder, std::int64_t context = 0);

  const HubWeights& weights() const { return weights_; }
  // Of the dense model.
  Config config() const;

  bool has(CheckpointSink::File file, const std::string& name) const override;
  void load(CheckpointSink::File file, const std::string& name, const Tensor& out) const override;

 private:
  HubWeights weights_;
};

struct HubTokenizer {
  std::unique_ptr<Tokenizer> tokenizer;  // null where there is none that filigree reads
  std::string why_not;                   // then the reason
};
// The tokenizer of a folder, for a model of `vocab` entries.
HubTokenizer find_hub_tokenizer(const std::filesystem::path& folder, std::int64_t vocab);

// Files that a model of Hugging Face's brings along and that an export gives back are kept below a checkpoint, or a run
// that starts from the folder, in a folder of this name.
inline constexpr const char* kKeptHubFolder = "huggingface";
// Where they lie for a checkpoint; empty where there are none.
std::filesystem::path kept_hub_files(const std::filesystem::path& checkpoint);
// Copies those that `from` has to `to`, which is made where there are any. tokenizer: also the tokenizer's files.
void keep_hub_files(const std::filesystem::path& from, const std::filesystem::path& to, bool tokenizer);
// config.json, generation_config.json; of a tokenizer.
inline constexpr const char* kHubModelFiles[] = {"config.json", "generation_config.json"};
inline constexpr const char* kHubTokenizerFiles[] = {
    "tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "vocab.json",     "merges.txt",      "chat_template.jinja",   "chat_template.json"};

}  // namespace filigree
