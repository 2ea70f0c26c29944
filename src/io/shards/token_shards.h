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
#include <filesystem>
#include <span>
#include <vector>

#include "io/atomic_file.h"

namespace filigree {

// A file of tokens, memory-mapped and read-only. Reading is safe from several threads.
class TokenShard {
 public:
  // Throws UserError naming the file where magic, version or the token count do not fit the file.
  explicit TokenShard(const std::filesystem::path& path);

  std::int64_t tokens() const { return tokens_; }
  const std::filesystem::path& path() const { return file_.path(); }

  // ids[i] = token `begin` + i. Throws Error outside [0, tokens()).
  void read(std::int64_t begin, std::span<std::int32_t> ids) const;

  // Reads the whole file; throws UserError naming file, position and id where an id is not below `vocab`. Returns the
  // CRC-32C of `previous` (checksum.h) followed by the ids as they are stored.
  std::uint32_t check_ids(std::int64_t vocab, std::uint32_t previous = 0) const;

 private:
  const std::byte* ids() const;

  MappedFile file_;
  std::int64_t tokens_ = 0;
  std::size_t width_ = 0;  // bytes an id: 2 or 4
};

// Writes one file, which appears under its name when finish() is called: no reader sees half a file, and without
// finish() nothing stays.
class TokenShardWriter {
 public:
  TokenShardWriter(const std::filesystem::path& path, std::int64_t vocab);

  // Throws Error for an id outside [0, vocab), or when the disk is full.
  void append(std::span<const std::int32_t> ids);
  std::int64_t tokens() const { return tokens_; }
  void finish();

 private:
  void flush();

  AtomicFile file_;
  std::int64_t vocab_;
  std::int64_t tokens_ = 0;
  std::vector<std::byte> pending_;  // ids not yet handed to the system
};

}  // namespace filigree
