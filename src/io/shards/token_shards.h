// Files of token ids in the formats of llm.c, so that its data sets can be used here and ours there:
//
//   256 int32 header: magic, version, token count, zeros        little endian
//   token count ids
//   magic 20240520, version 1: ids are uint16 (GPT-2)           written when the vocabulary fits
//   magic 20240801, version 7: ids are uint32 (Llama 3)
//
// Nothing in such a file says which tokenizer made it or where documents end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <span>
#include <vector>

namespace filigree {

// A file of tokens, memory-mapped and read-only. Reading is safe from several threads.
class TokenShard {
 public:
  // Throws UserError naming the file where magic, version or the token count do not fit the file.
  explicit TokenShard(const std::filesystem::path& path);
  TokenShard(TokenShard&& other) noexcept;
  TokenShard& operator=(TokenShard&&) = delete;
  ~TokenShard();

  std::int64_t tokens() const { return tokens_; }
  const std::filesystem::path& path() const { return path_; }

  // ids[i] = token `begin` + i. Throws Error outside [0, tokens()).
  void read(std::int64_t begin, std::span<std::int32_t> ids) const;

  // Reads the whole file; throws UserError naming file, position and id where an id is not below `vocab`.
  void check_ids(std::int64_t vocab) const;

 private:
  std::filesystem::path path_;
  const std::byte* mapped_ = nullptr;
  std::size_t mapped_bytes_ = 0;
  std::int64_t tokens_ = 0;
  std::size_t width_ = 0;  // bytes an id: 2 or 4
};

// Writes one file: under a temporary name until finish() renames it, so that no reader sees half a file. Without
// finish() nothing stays.
class TokenShardWriter {
 public:
  TokenShardWriter(std::filesystem::path path, std::int64_t vocab);
  ~TokenShardWriter();
  TokenShardWriter(const TokenShardWriter&) = delete;
  TokenShardWriter& operator=(const TokenShardWriter&) = delete;

  // Throws Error for an id outside [0, vocab), or when the disk is full.
  void append(std::span<const std::int32_t> ids);
  std::int64_t tokens() const { return tokens_; }
  void finish();

 private:
  void write(const void* data, std::size_t bytes);

  std::filesystem::path path_, temporary_;
  std::FILE* file_ = nullptr;
  std::int64_t vocab_;
  std::int64_t tokens_ = 0;
  std::vector<std::uint16_t> narrow_;  // reused conversion space
};

}  // namespace filigree
