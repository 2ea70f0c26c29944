// One or more files of tokens as one long sequence.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "io/shards/token_shards.h"

namespace filigree {

// What samples are made from: two sequences of tokens are the same where these are, in however many files they lie.
struct DataFingerprint {
  std::int64_t tokens = 0;
  std::uint32_t checksum = 0;  // CRC-32C of the ids as they are stored

  bool operator==(const DataFingerprint&) const = default;
};

class DatasetView {
 public:
  // Maps the files in the given order and checks every id against `vocab`, at about the speed of memory or disk. Throws
  // UserError naming the file.
  DatasetView(const std::vector<std::filesystem::path>& shards, std::int64_t vocab);

  std::int64_t tokens() const { return starts_.back(); }
  std::int64_t vocab() const { return vocab_; }
  DataFingerprint fingerprint() const { return {tokens(), checksum_}; }
  // The first file, for messages.
  const std::filesystem::path& path() const { return shards_.front().path(); }

  // ids[i] = token `begin` + i of the whole sequence.
  void read(std::int64_t begin, std::span<std::int32_t> ids) const;

 private:
  std::vector<TokenShard> shards_;
  std::vector<std::int64_t> starts_;  // (shards + 1) first token of each shard; the last entry is the total
  std::int64_t vocab_;
  std::uint32_t checksum_ = 0;
};

}  // namespace filigree
