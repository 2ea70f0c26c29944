// Files that are complete or absent: what is written gets a temporary name beside its place, is flushed to the disk and
// then renamed, so that a crash, a full disk or a signal never leaves half a file under the real name. Temporary names
// end in ".tmp". Also here: reading a whole file, and mapping one.
//
// A write that fails throws Error with the path and the system's reason, and removes the temporary name. A file that
// cannot be read is the user's mistake: UserError.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace filigree {

// One file, written in pieces. Replaces an existing file of that name when it is committed, not before.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();  // removes the temporary file unless committed
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void append(const void* data, std::size_t bytes);
  // Bytes of a place that was never written read as zero.
  void write_at(std::uint64_t offset, const void* data, std::size_t bytes);
  // Flushes, renames, flushes the folder. Nothing may be written afterwards.
  void commit();
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int descriptor_ = -1;
  std::uint64_t end_ = 0;  // where append continues
};

void write_file_atomically(const std::filesystem::path& path, std::string_view contents);

// A folder that appears with all its files at once. The caller writes below temporary() and then commits. A path that
// exists already is refused, at construction and again at commit.
class AtomicFolder {
 public:
  explicit AtomicFolder(std::filesystem::path path);
  ~AtomicFolder();  // removes the temporary folder unless committed
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  const std::filesystem::path& temporary() const { return temporary_; }
  // Flushes every file and folder below, renames, flushes the parent folder.
  void commit();

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
};

// Whether `name` is a temporary name of a file or folder called `target`.
bool is_temporary_name(const std::string& name, const std::string& target);
// Removes what processes that no longer live left of `path` under temporary names.
void remove_stale(const std::filesystem::path& path);

// Returns when the file's contents are on the disk.
void flush_to_disk(const std::filesystem::path& file);

// The whole file as bytes; UserError when it is missing, no regular file, or longer than `limit` bytes.
std::string read_file(const std::filesystem::path& path, std::uint64_t limit);

// A regular file mapped for reading. The bytes are valid as long as the object (a moved-from object has none). The file
// must not be shortened meanwhile: the system would stop the process.
class MappedFile {
 public:
  MappedFile() = default;
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace filigree
