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

}  // namespace

void write_hub_tokenizer(const fs::path& folder, const fs::path& kept, const Tokenizer* tokenizer,
                         std::vector<std::string>& notes) {
  bool any = false;
  for (const char* name : kHubTokenizerFiles) any = copy_kept(kept, folder, name) || any;
  if (any) return;
  if (tokenizer == nullptr)
    notes.emplace_back("the model has no tokenizer: the folder has none either");
  else
    tokenizer->write_huggingface_files(folder);
}

void write_generation_config(const fs::path& folder, const fs::path& kept, const Tokenizer* tokenizer) {
  if (copy_kept(kept, folder, "generation_config.json") || tokenizer == nullptr) return;
  const Json json = {{"bos_token_id", tokenizer->end_of_text()}, {"eos_token_id", tokenizer->end_of_text()}};
  write_file_atomically(folder / "generation_config.json", json.dump(2) + "\n");
}

}  // namespace filigree
