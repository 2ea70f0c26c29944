#include "io/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <system_error>
#include <utility>

#include "core/error.h"

namespace filigree {

namespace fs = std::filesystem;

namespace {

std::string reason(int code) {
  return std::generic_category().message(code);
}

[[noreturn]] void fail(const std::string& what, const fs::path& path, int code) {
  throw Error("cannot " + what + " '" + path.string() + "': " + reason(code));
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

// "checkpoints/step-8" and "checkpoints/step-8/" name the same folder; the temporary name goes beside, not inside.
fs::path without_trailing_slash(fs::path path) {
  return path.has_filename() ? path : path.parent_path();
}

// A name beside `path` that another process, or an earlier one that was killed, does not use.
fs::path temporary_name(const fs::path& path, int attempt) {
  return folder_of(path) /
         (path.filename().string() + "." + std::to_string(getpid()) + "-" + std::to_string(attempt) + ".tmp");
}
constexpr int kAttempts = 1000;

// The process that gave `target` the temporary name `name`; 0 where it is none.
int process_of(const std::string& name, const std::string& target) {
  if (!name.starts_with(target + ".")) return 0;
  const std::string rest = name.substr(target.size() + 1);
  int process = 0, attempt = 0, length = 0;
  const bool whole = std::sscanf(rest.c_str(), "%d-%d.tmp%n", &process, &attempt, &length) == 2 &&
                     length == static_cast<int>(rest.size());
  return whole ? std::max(process, 0) : 0;
}

void sync_path(const fs::path& path, int flags) {
  const int descriptor = open(path.c_str(), flags | O_CLOEXEC);
  if (descriptor < 0) fail("open", path, errno);
  const int status = fsync(descriptor);
  const int code = errno;
  close(descriptor);
  // Some file systems cannot flush a folder and say EINVAL; the rename itself is still atomic there.
  if (status != 0 && !(code == EINVAL && (flags & O_DIRECTORY) != 0)) fail("flush", path, code);
}

void sync_folder(const fs::path& path) {
  sync_path(path, O_RDONLY | O_DIRECTORY);
}

}  // namespace

bool is_temporary_name(const std::string& name, const std::string& target) {
  return process_of(name, target) > 0;
}

void remove_stale(const fs::path& path) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder_of(path), ignored)) {
    const int process = process_of(entry.path().filename().string(), path.filename().string());
    if (process > 0 && kill(process, 0) != 0 && errno == ESRCH) fs::remove_all(entry.path(), ignored);
  }
}

void flush_to_disk(const fs::path& file) {
  sync_path(file, O_RDONLY);
}

AtomicFile::AtomicFile(fs::path path) : path_(std::move(path)) {
  for (int attempt = 0; attempt < kAttempts && descriptor_ < 0; ++attempt) {
    temporary_ = temporary_name(path_, attempt);
    descriptor_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor_ < 0 && errno != EEXIST) fail("write", path_, errno);
  }
  if (descriptor_ < 0) fail("find a free temporary name for", path_, EEXIST);
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) {
    close(descriptor_);
    unlink(temporary_.c_str());
  }
}

void AtomicFile::append(const void* data, std::size_t bytes) {
  write_at(end_, data, bytes);
}

void AtomicFile::write_at(std::uint64_t offset, const void* data, std::size_t bytes) {
  require(descriptor_ >= 0, "AtomicFile: written after commit");
  const auto* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = pwrite(descriptor_, next, bytes, static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("write", path_, errno);
    if (written == 0) fail("write", path_, ENOSPC);
    next += written;
    offset += static_cast<std::uint64_t>(written);
    bytes -= static_cast<std::size_t>(written);
    end_ = std::max(end_, offset);
  }
}

void AtomicFile::commit() {
  require(descriptor_ >= 0, "AtomicFile: committed twice");
  if (fsync(descriptor_) != 0) fail("flush", path_, errno);
  const int closed = close(std::exchange(descriptor_, -1));
  // Network file systems report a full disk here. The destructor no longer knows the file: remove it at once.
  if (closed != 0 || std::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int code = errno;
    unlink(temporary_.c_str());
    fail("write", path_, code);
  }
  sync_folder(folder_of(path_));
}

void write_file_atomically(const fs::path& path, std::string_view contents) {
  AtomicFile file(path);
  file.append(contents.data(), contents.size());
  file.commit();
}

AtomicFolder::AtomicFolder(fs::path path) : path_(without_trailing_slash(std::move(path))) {
  std::error_code code;
  if (fs::exists(fs::symlink_status(path_, code))) fail("create", path_, EEXIST);
  remove_stale(path_);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const fs::path candidate = temporary_name(path_, attempt);
    if (mkdir(candidate.c_str(), 0777) == 0) {
      temporary_ = candidate;
      return;
    }
    if (errno != EEXIST) fail("create", path_, errno);
  }
  fail("find a free temporary name for", path_, EEXIST);
}

AtomicFolder::~AtomicFolder() {
  std::error_code ignored;
  if (!temporary_.empty()) fs::remove_all(temporary_, ignored);
}

void AtomicFolder::commit() {
  require(!temporary_.empty(), "AtomicFolder: committed twice");
  std::error_code code;
  fs::recursive_directory_iterator below(temporary_, code);
  for (; !code && below != fs::recursive_directory_iterator(); below.increment(code)) {
    if (below->is_symlink()) continue;
    if (below->is_directory()) sync_folder(below->path());
    if (below->is_regular_file()) sync_path(below->path(), O_RDONLY);
  }
  if (code) fail("list", temporary_, code.value());
  sync_folder(temporary_);
  // A plain rename replaces an empty folder without a word.
  if (renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, path_.c_str(), RENAME_NOREPLACE) != 0) {
    const int status = errno;
    // File systems without that flag: the constructor's check is all there is, repeated here.
    const bool unsupported = status == EINVAL || status == ENOSYS;
    if (!unsupported) fail("create", path_, status);
    if (fs::exists(fs::symlink_status(path_, code))) fail("create", path_, EEXIST);
    if (std::rename(temporary_.c_str(), path_.c_str()) != 0) fail("create", path_, errno);
  }
  temporary_.clear();
  sync_folder(folder_of(path_));
}

}  // namespace filigree
