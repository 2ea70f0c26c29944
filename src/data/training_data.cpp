#include "data/training_data.h"

#include <glob.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "data/data_info.h"
#include "data/prepare.h"
#include "text/documents.h"

namespace filigree {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPreparedFolder = "data";  // inside the run's folder

// What one key names: token shards or text, not both.
struct Named {
  std::vector<fs::path> shards, text;
  std::optional<fs::path> folder;  // a data folder in which all shards lie
};

bool has_info(const fs::path& folder) {
  std::error_code error;
  return fs::exists(folder / kDataInfoFile, error);
}

fs::path folder_of(const fs::path& file) {
  return file.has_parent_path() ? file.parent_path() : fs::path(".");
}

Named resolve(const std::vector<std::string>& patterns, const std::string& split) {
  const std::string key = "data." + split;
  Named named;
  for (const std::string& pattern : patterns) {
    const std::vector<fs::path> paths = expand_glob(pattern);
    if (paths.empty()) throw UserError(key + ": nothing matches \"" + pattern + "\"");
    for (const fs::path& path : paths) {
      std::error_code error;
      if (fs::is_directory(path, error) && has_info(path)) {
        const std::vector<fs::path> shards = shard_paths(path, split);
        if (shards.empty()) throw UserError(key + ": the data folder " + path.string() + " has no " + split + " split");
        named.shards.insert(named.shards.end(), shards.begin(), shards.end());
      } else if (path.extension() == ".bin") {
        named.shards.push_back(path);
      } else {
        named.text.push_back(path);
      }
    }
  }
  if (!named.shards.empty() && !named.text.empty())
    throw UserError(key + " names token shards (" + named.shards.front().string() + ") and text (" +
                    named.text.front().string() + "); only one of them can be used");
  const auto foreign = [&](const fs::path& shard) { return folder_of(shard) != folder_of(named.shards.front()); };
  if (!named.shards.empty() && has_info(folder_of(named.shards.front())) &&
      std::none_of(named.shards.begin(), named.shards.end(), foreign))
    named.folder = folder_of(named.shards.front());
  return named;
}

// Whether `spec`, as the user gave it, names `tokenizer`.
bool names_tokenizer(const std::string& spec, const Tokenizer& tokenizer) {
  const TokenizerSpec wanted = parse_tokenizer_spec(spec);
  return wanted.kind == TokenizerSpec::Kind::file ? load_tokenizer(wanted.file)->identity() == tokenizer.identity()
                                                  : spec == tokenizer.name();
}

// Throws unless `spec` names `tokenizer`, which made the tokens in `folder`.
void check_tokenizer(const std::string& spec, const Tokenizer& tokenizer, const fs::path& folder) {
  if (!names_tokenizer(spec, tokenizer))
    throw UserError("data.tokenizer is \"" + spec + "\", but the tokens in " + folder.string() + " were made by " +
                    tokenizer.identity() + "; leave data.tokenizer out, or prepare the text again");
}

TrainingData from_shards(const DataConfig& config, Named train, Named val) {
  TrainingData data;
  std::optional<DataInfo> info;
  if (train.folder) {
    info = read_data_info(*train.folder);
    data.tokenizer = load_tokenizer(*train.folder);
    if (data.tokenizer->identity() != info->tokenizer)
      throw UserError(train.folder->string() + ": its tokenizer is " + data.tokenizer->identity() +
                      ", but data.json says that " + info->tokenizer + " made the tokens");
    if (!config.tokenizer.empty()) check_tokenizer(config.tokenizer, *data.tokenizer, *train.folder);
    if (val.shards.empty() && info->val.shards > 0) {
      val.shards = shard_paths(*train.folder, "val");
      val.folder = train.folder;
    }
  } else if (!config.tokenizer.empty()) {
    const TokenizerSpec spec = parse_tokenizer_spec(config.tokenizer);
    if (spec.kind == TokenizerSpec::Kind::train_sentencepiece)
      throw UserError("data.tokenizer is \"" + config.tokenizer + "\", but " + train.shards.front().string() +
                      " holds tokens already: name the file of the tokenizer that made them, or leave it out");
    data.tokenizer = make_tokenizer(spec, {});
  }
  if (val.folder) {
    const DataInfo of_val = read_data_info(*val.folder);
    if (data.tokenizer && of_val.tokenizer != data.tokenizer->identity())
      throw UserError("data.val was made by the tokenizer " + of_val.tokenizer + ", data.train by " +
                      data.tokenizer->identity() + "; they must be the same");
    if (of_val.val.tokens > 0 && val.shards == shard_paths(*val.folder, "val")) {
      data.val_bytes_per_token = static_cast<double>(of_val.val.bytes) / static_cast<double>(of_val.val.tokens);
      data.val_unigram_entropy = of_val.val_unigram_entropy;
    }
  }
  data.train = std::move(train.shards);
  data.val = std::move(val.shards);
  return data;
}

bool same_names(const std::vector<std::string>& before, const std::vector<fs::path>& now) {
  return std::equal(before.begin(), before.end(), now.begin(), now.end(),
                    [](const fs::path& a, const fs::path& b) { return a.filename() == b.filename(); });
}

// Throws unless the text that `train` and `val` name is what the tokens in `folder` were made of. It may have moved:
// its files and folders have the same names then, and as many bytes. Where the tokens are only read, later changes of
// the text do not matter.
void check_sources(const Named& train, const Named& val, const std::string& tokenizer, const fs::path& folder,
                   bool only_read) {
  const DataInfo info = read_data_info(folder);
  require_user(same_names(info.sources, train.text) && same_names(info.val_sources, val.text) &&
                   names_tokenizer(tokenizer, *load_tokenizer(folder)),
               folder.string() + ": the text of this run was prepared from other files or with another tokenizer");
  if (only_read || info.source_bytes < 0) return;
  const std::int64_t bytes = find_text(train.text).bytes + (val.text.empty() ? 0 : find_text(val.text).bytes);
  require_user(bytes == info.source_bytes, folder.string() + ": was prepared from " +
                                               std::to_string(info.source_bytes) +
                                               " bytes of text, but data.train and data.val now name " +
                                               std::to_string(bytes) + "; restore the text, or start a new run");
}

}  // namespace

std::vector<fs::path> expand_glob(const std::string& pattern) {
  std::error_code error;
  if (fs::exists(pattern, error)) return {pattern};
  // The folders that it begins with and that exist as they are written lose what *, ? and [ in their names would mean.
  fs::path reached;
  std::string glob_pattern;
  bool literal = true;
  for (const fs::path& part : fs::path(pattern)) {
    reached /= part;
    literal = literal && fs::exists(reached, error);
    if (!glob_pattern.empty() && glob_pattern.back() != '/') glob_pattern += '/';
    for (const char c : part.native()) {
      if (literal && std::string_view("*?[\\").find(c) != std::string_view::npos) glob_pattern += '\\';
      glob_pattern += c;
    }
  }
  glob_t found{};
  std::vector<fs::path> paths;
  if (glob(glob_pattern.c_str(), 0, nullptr, &found) == 0)  // sorts by name
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
  return paths;
}

TrainingData find_training_data(const DataConfig& config, const TrainingDataOptions& options) {
  require_user(!config.train.empty(), "data.train is missing: name token shards or text");
  Named train = resolve(config.train, "train");
  Named val = resolve(config.val, "val");
  if (!val.text.empty() != !train.text.empty() && !config.val.empty())
    throw UserError("data.train names " + std::string(train.text.empty() ? "token shards" : "text") +
                    " and data.val the other; both must be shards, or both text");
  if (train.text.empty()) return from_shards(config, std::move(train), std::move(val));

  const fs::path folder = options.run_folder / kPreparedFolder;
  require_user(!config.tokenizer.empty(),
               "data.tokenizer is missing: text needs one, bytes, spm:VOCAB_SIZE or the path of a file");
  if (has_info(folder)) {
    check_sources(train, val, config.tokenizer, folder, !options.may_prepare);
  } else {
    require_user(options.may_prepare, folder.string() +
                                          ": the text of data.train has not been prepared there; prepare it with "
                                          "`filigree prepare` and name the folder");
    prepare({.text = train.text,
             .val_text = val.text,
             .tokenizer = config.tokenizer,
             .out = folder,
             .progress = options.progress,
             .stop = options.stop});
    if (options.prepared) options.prepared(folder);
  }
  DataConfig prepared;
  prepared.train = {folder.string()};
  return from_shards(prepared, resolve(prepared.train, "train"), {});
}

std::int64_t tokenizer_entries(const DataConfig& config) {
  if (config.tokenizer.empty())
    return find_training_data(config, {.run_folder = {}, .progress = nullptr, .stop = {}, .may_prepare = false})
        .vocab();
  const TokenizerSpec spec = parse_tokenizer_spec(config.tokenizer);
  return spec.kind == TokenizerSpec::Kind::train_sentencepiece ? spec.vocab : make_tokenizer(spec, {})->vocab_size();
}

}  // namespace filigree
