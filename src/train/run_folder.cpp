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

}  // namespace

RunFolder::RunFolder(fs::path path, bool resume) : path_(std::move(path)) {
  if (fs::exists(path_)) {
    require_user(resume, path_.string() + ": exists already; continue that run with --resume, or choose another --out");
    require_user(fs::is_directory(path_) && fs::exists(path_ / "config.toml"),
                 path_.string() + ": exists, but is no run (it has no config.toml); choose another --out");
    kept_ = true;
    lock();
    return;
  }
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
  }
}

}  // namespace filigree
