#include "data/data_info.h"

#include <cstdio>
#include <nlohmann/json.hpp>
#include <system_error>

#include "core/error.h"
#include "io/atomic_file.h"

namespace filigree {
namespace {

constexpr std::uint64_t kLargestInfo = 64 << 20;  // bytes
constexpr std::int64_t kMostShards = 1'000'000;

nlohmann::ordered_json to_json(const SplitInfo& split) {
  return {{"documents", split.documents}, {"bytes", split.bytes}, {"tokens", split.tokens}, {"shards", split.shards}};
}

SplitInfo split_from(const nlohmann::json& json) {
  SplitInfo split;
  json.at("documents").get_to(split.documents);
  json.at("bytes").get_to(split.bytes);
  json.at("tokens").get_to(split.tokens);
  json.at("shards").get_to(split.shards);
  return split;
}

bool plausible(const SplitInfo& split) {
  return split.documents >= 0 && split.bytes >= 0 && split.tokens >= 0 && split.shards >= 0 &&
         split.shards <= kMostShards;
}

}  // namespace

void write_data_info(const std::filesystem::path& folder, const DataInfo& info) {
  const nlohmann::ordered_json json = {{"tokenizer", info.tokenizer},
                                       {"vocab", info.vocab},
                                       {"train", to_json(info.train)},
                                       {"val", to_json(info.val)},
                                       {"val_unigram_entropy", info.val_unigram_entropy},
                                       {"tokenizer_spec", info.tokenizer_spec},
                                       {"val_fraction", info.val_fraction},
                                       {"sources", info.sources},
                                       {"val_sources", info.val_sources},
                                       {"source_bytes", info.source_bytes}};
  // Names of files may hold bytes that are no UTF-8: they are replaced, not refused.
  write_file_atomically(folder / kDataInfoFile,
                        json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

DataInfo read_data_info(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / kDataInfoFile;
  const std::string text = read_file(path, kLargestInfo);
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    DataInfo info;
    json.at("tokenizer").get_to(info.tokenizer);
    json.at("vocab").get_to(info.vocab);
    info.train = split_from(json.at("train"));
    info.val = split_from(json.at("val"));
    json.at("val_unigram_entropy").get_to(info.val_unigram_entropy);
    json.at("tokenizer_spec").get_to(info.tokenizer_spec);
    json.at("val_fraction").get_to(info.val_fraction);
    json.at("sources").get_to(info.sources);
    json.at("val_sources").get_to(info.val_sources);
    info.source_bytes = json.value("source_bytes", std::int64_t{-1});
    if (info.vocab <= 0 || !plausible(info.train) || !plausible(info.val))
      throw UserError(path.string() + ": a count in this file is out of range");
    return info;
  } catch (const nlohmann::json::exception& failure) {
    throw UserError(path.string() + ": this is not the data.json of a data folder: " + failure.what());
  }
}

std::string shard_name(std::string_view split, std::int64_t index) {
  char number[32];
  std::snprintf(number, sizeof number, "-%06lld.bin", static_cast<long long>(index));
  return std::string(split) + number;
}

std::vector<std::filesystem::path> shard_paths(const std::filesystem::path& folder, std::string_view split) {
  const DataInfo info = read_data_info(folder);
  const std::int64_t count = split == "val" ? info.val.shards : info.train.shards;
  std::vector<std::filesystem::path> paths;
  std::error_code error;
  for (std::int64_t i = 0; i < count; ++i) {
    paths.push_back(folder / shard_name(split, i));
    if (!std::filesystem::exists(paths.back(), error))
      throw UserError(paths.back().string() + ": this file is missing; data.json counts " + std::to_string(count) +
                      " files of " + std::string(split));
  }
  return paths;
}

}  // namespace filigree
