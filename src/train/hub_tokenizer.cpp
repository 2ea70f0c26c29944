#include "train/hub_tokenizer.h"

#include <nlohmann/json.hpp>

#include "io/atomic_file.h"
#include "train/hub_source.h"

namespace filigree {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

bool copy_kept(const fs::path& kept, const fs::path& folder, const char* name) {
  if (kept.empty() || !fs::is_regular_file(kept / name)) return false;
  fs::copy_file(kept / name, folder / name);
  return true;
}

// Documents begin and end with the end-of-text, which encode() never adds.
std::string sentencepiece_config(const Tokenizer& tokenizer) {
  const std::string end(kEndOfTextMarker);
  Json json = {{"tokenizer_class", "LlamaTokenizer"},
               {"bos_token", end},
               {"eos_token", end},
               {"unk_token", "<unk>"},
               {"add_bos_token", false},
               {"add_eos_token", false},
               {"add_prefix_space", false},
               {"legacy", false},
               {"clean_up_tokenization_spaces", false}};
  json["model_max_length"] = 1'000'000'000;
  json["added_tokens_decoder"] = {{std::to_string(tokenizer.end_of_text()),
                                   {{"content", end},
                                    {"lstrip", false},
                                    {"normalized", false},
                                    {"rstrip", false},
                                    {"single_word", false},
                                    {"special", true}}}};
  return json.dump(2) + "\n";
}

}  // namespace

void write_hub_tokenizer(const fs::path& folder, const fs::path& kept, const Tokenizer* tokenizer,
                         std::vector<std::string>& notes) {
  bool any = false;
  for (const char* name : kHubTokenizerFiles) any = copy_kept(kept, folder, name) || any;
  if (any) return;
  if (tokenizer == nullptr) {
    notes.emplace_back("the model has no tokenizer: the folder has none either");
  } else if (tokenizer->name() == "bytes") {
    notes.emplace_back(
        "the byte tokenizer has no counterpart in Hugging Face's formats, so that no tokenizer was written: the id of "
        "a "
        "byte is its value, and 256 ends a text");
  } else {
    write_file_atomically(folder / "tokenizer.model", tokenizer->serialize());
    write_file_atomically(folder / "tokenizer_config.json", sentencepiece_config(*tokenizer));
  }
}

void write_generation_config(const fs::path& folder, const fs::path& kept, const Tokenizer* tokenizer) {
  if (copy_kept(kept, folder, "generation_config.json") || tokenizer == nullptr) return;
  const Json json = {{"bos_token_id", tokenizer->end_of_text()}, {"eos_token_id", tokenizer->end_of_text()}};
  write_file_atomically(folder / "generation_config.json", json.dump(2) + "\n");
}

}  // namespace filigree
