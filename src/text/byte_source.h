// The bytes of a file, decompressed on the way where its name ends in .gz, .xz or .zst. Streaming: memory does not grow
// with the file. Archives of several members, as gzip and its relatives allow, read as one text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>

namespace filigree {

class ByteSource {
 public:
  virtual ~ByteSource() = default;

  // Fills up to `size` bytes and returns how many; 0 only at the end. Throws UserError naming the file where an archive
  // is truncated or damaged, Error where the disk fails.
  virtual std::size_t read(char* into, std::size_t size) = 0;
  // Bytes of the file itself (compressed ones) taken so far.
  virtual std::int64_t position() const = 0;
};

enum class Compression : std::uint8_t { none, gzip, xz, zstd };

// By the name's last extension, in either case.
Compression compression_of(const std::filesystem::path& path);

// Throws UserError where the file is missing, cannot be opened or is not a regular file.
std::unique_ptr<ByteSource> open_byte_source(const std::filesystem::path& path);

}  // namespace filigree
