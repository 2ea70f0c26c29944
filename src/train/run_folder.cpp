#include "train/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/error.h"

namespace filigree {
namespace {

namespace fs = std::filesystem;

// Whether a process that was killed during set-up left the folder: its lock file, and perhaps text half prepared.
bool is_leftover(const fs::path& path) {
  if (!fs::is_directory(path) || !fs::exists(path / ".lock")) return false;
  for (const auto& entry : fs::directory_iterator(path)) {
    const fs::path name = entry.path().filename();
    if (name != ".lock" && name != "data" && name.extension() != ".tmp") return false;
  }
  return true;
}

}  // namespace

RunFolder::RunFolder(fs::path path, bool resume, const FolderKind& kind) : path_(std::move(path)) {
  if (is_leftover(path_)) {
    created_ = true;
    lock();
    return;
  }
  if (fs::exists(path_)) {
    require_user(resume, path_.string() + ": exists already; continue that run with --resume, or choose another --out");
    require_user(
        fs::is_directory(path_) && fs::exists(path_ / kind.marker),
        path_.string() + ": exists, but is no " + kind.name + " (it has no " + kind.marker + "); choose another --out");
    kept_ = true;
    lock();
    return;
  }
  // Folders on the way are ours too: the topmost that is missing.
  for (fs::path parent = fs::absolute(path_).lexically_normal(); !fs::exists(parent); parent = parent.parent_path())
    topmost_ = parent;
  std::error_code failure;
  fs::create_directories(path_, failure);
  require_user(!failure, path_.string() + ": cannot make this folder: " + failure.message());
  created_ = true;
  lock();
}

void RunFolder::lock() {
  // The kernel gives the lock back however the process ends; the empty file may stay.
  const fs::path file = path_ / ".lock";
  lock_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  require_user(lock_ >= 0, file.string() + ": " + std::strerror(errno));
  if (::flock(lock_, LOCK_EX | LOCK_NB) == 0) return;
  ::close(lock_);
  lock_ = -1;
  throw UserError(path_.string() + ": another process is training in this folder");
}

RunFolder::~RunFolder() {
  if (lock_ >= 0) ::close(lock_);
  if (created_ && !kept_) {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
    for (fs::path parent = fs::absolute(path_).lexically_normal(); !topmost_.empty() && parent != topmost_;) {
      parent = parent.parent_path();
      if (!fs::remove(parent, ignored)) break;  // somebody else put something there
    }
  }
}

}  // namespace filigree
