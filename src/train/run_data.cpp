#include "train/run_data.h"

#include <glob.h>

#include <algorithm>

#include "core/interrupt.h"
#include "data/prepare.h"

namespace filigree {
namespace {

namespace fs = std::filesystem;

// The files that `patterns` name, each pattern's in order of their names.
std::vector<fs::path> expand(const std::vector<std::string>& patterns, const std::string& key) {
  std::vector<fs::path> files;
  for (const std::string& pattern : patterns) {
    glob_t found = {};
    const int status = glob(pattern.c_str(), 0, nullptr, &found);
    for (std::size_t i = 0; status == 0 && i < found.gl_pathc; ++i) files.emplace_back(found.gl_pathv[i]);
    globfree(&found);
    require_user(status == 0, key + ": nothing is called " + pattern +
                                  "; give token shards (made by `filigree prepare`) or text files or folders");
  }
  return files;
}

bool is_shard(const fs::path& path) { return path.extension() == ".bin"; }

void require_one_kind(const std::vector<fs::path>& files, const std::string& key) {
  const auto shards = std::count_if(files.begin(), files.end(), is_shard);
  require_user(shards == 0 || shards == static_cast<std::ptrdiff_t>(files.size()),
               key + ": names token shards (.bin) and text together; use one or the other");
}

void use_folder(RunData& data, const fs::path& folder) {
  data.info = read_data_info(folder);
  data.tokenizer = load_tokenizer(folder / kTokenizerFile);
  data.vocab = data.tokenizer->vocab_size();
  if (data.info->val.tokens > 0)
    data.val_bytes_per_token = static_cast<double>(data.info->val.bytes) / static_cast<double>(data.info->val.tokens);
}

// The tokenizer that data.tokenizer asks for must be the one that made the shards.
void check_tokenizer(const Config& config, RunData& data, const fs::path& folder) {
  const std::string& wanted = config.data.tokenizer;
  if (wanted.empty()) return;
  const TokenizerSpec spec = parse_tokenizer_spec(wanted);
  if (data.info) {
    const bool same = spec.kind == TokenizerSpec::Kind::file ? load_tokenizer(spec.file)->identity() == data.info->tokenizer
                                                             : wanted == data.info->tokenizer_spec;
    require_user(same, "data.tokenizer: \"" + wanted + "\", but the shards in " + folder.string() + " were made with \"" +
                           data.info->tokenizer_spec + "\"; leave the key out to use theirs, or prepare the text again");
    return;
  }
  require_user(spec.kind != TokenizerSpec::Kind::train_sentencepiece,
               "data.tokenizer: \"" + wanted + "\" would be trained on text, but data.train names token shards without a " +
                   std::string(kDataInfoFile) + "; give the tokenizer's file");
  data.tokenizer = make_tokenizer(spec, {});
  data.vocab = data.tokenizer->vocab_size();
}

}  // namespace

std::optional<DatasetView> RunData::val() const {
  if (val_shards.empty()) return std::nullopt;
  return DatasetView(val_shards, vocab);
}

RunData open_run_data(const Config& config, const fs::path& run, std::FILE* progress) {
  require_user(!config.data.train.empty(), "data.train: missing; name token shards or text files, e.g. \"data/train-*.bin\"");
  const std::vector<fs::path> train = expand(config.data.train, "data.train");
  const std::vector<fs::path> val = expand(config.data.val, "data.val");
  require_one_kind(train, "data.train");
  RunData data;
  fs::path folder;
  if (is_shard(train.front())) {
    require_one_kind(val, "data.val");
    require_user(val.empty() || is_shard(val.front()), "data.val: is text, but data.train names token shards; prepare it with the same tokenizer");
    folder = train.front().parent_path();
    if (fs::exists(folder / kDataInfoFile)) use_folder(data, folder);
    check_tokenizer(config, data, folder);
    data.train_shards = train;
    data.val_shards = val;
  } else {
    require_user(!config.data.tokenizer.empty(),
                 "data.tokenizer: missing; text needs one: \"bytes\", \"spm:VOCABULARY\" (learned from the text) or a file");
    folder = run / "data";
    if (!fs::exists(folder / kDataInfoFile))
      prepare({.text = train, .val_text = val, .tokenizer = config.data.tokenizer, .out = folder, .progress = progress, .stop = interrupt_requested});
    use_folder(data, folder);
    data.train_shards = shard_paths(folder, "train");
    data.val_shards = shard_paths(folder, "val");
  }
  if (config.model.vocab > 0) {
    require_user(config.model.vocab >= data.vocab,
                 "model.vocab: " + std::to_string(config.model.vocab) + ", but the data's tokenizer has " +
                     std::to_string(data.vocab) + " entries; leave the key out to use its number");
    data.vocab = config.model.vocab;
  }
  require_user(data.vocab > 0, "model.vocab: missing; the shards in " + folder.string() +
                                   " do not say which tokenizer made them: give its number of entries");
  return data;
}

}  // namespace filigree
