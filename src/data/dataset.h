// One or more files of tokens as one long sequence.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "io/shards/token_shards.h"

namespace filigree {

class DatasetView {
 public:
  // Maps the files in the given order and checks every id against `vocab`, at about the speed of memory or disk. Throws
  // UserError naming the file.
  DatasetView(const std::vector<std::filesystem::path>& shards, std::int64_t vocab);

  std::int64_t tokens() const { return starts_.back(); }
  std::int64_t vocab() const { return vocab_; }
  // The first file, for messages.
  const std::filesystem::path& path() const { return shards_.front().path(); }

  // ids[i] = token `begin` + i of the whole sequence.
  void read(std::int64_t begin, std::span<std::int32_t> ids) const;

 private:
  std::vector<TokenShard> shards_;
  std::vector<std::int64_t> starts_;  // (shards + 1) first token of each shard; the last entry is the total
  std::int64_t vocab_;
};

}  // namespace filigree
