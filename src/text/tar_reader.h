// The files of a tar archive, one after the other: POSIX ustar and pax, and what GNU tar writes. Streaming but for the
// file at hand.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>

#include "text/byte_source.h"

namespace filigree {

struct NamedFile {
  std::string name;  // its path inside the archive
  std::string bytes;
};

class TarReader {
 public:
  // A .tar, also compressed (.tar.gz, .tar.xz, .tar.zst). Throws UserError where the file is missing.
  explicit TarReader(const std::filesystem::path& path);

  // The next regular file; folders and links are passed over. false at the end. Throws UserError naming the archive
  // where it is damaged or truncated, or where a file is longer than 1 GiB.
  bool next(NamedFile& file);

 private:
  bool read_header();
  std::string take(std::uint64_t bytes);
  [[noreturn]] void fail(const std::string& what) const;

  std::string path_;
  std::unique_ptr<ByteSource> source_;
  std::string header_;
};

// Whether a path's name says that it is a tar archive: .tar, .tar.gz, .tar.xz, .tar.zst in either case.
bool is_tar_name(const std::filesystem::path& path);

}  // namespace filigree
