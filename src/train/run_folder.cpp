#include "train/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>

#include "core/error.h"
#include "io/atomic_file.h"

namespace filigree {
namespace {

namespace fs = std::filesystem;

// What .lock says. Other programs have files of that name, too: only this text makes a folder one of ours.
constexpr std::string_view kLockText = "filigree: a run is set up or trains in this folder\n";

// What a process that is killed during set-up may leave beside its lock: prepared text, and unfinished files.
constexpr const char* kText = "data";

enum class Found { nothing, empty, unfinished, run, other };

bool is_marked(const fs::path& lock) {
  std::string text(kLockText.size(), '\0');
  std::ifstream stream(lock, std::ios::binary);
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  return stream.good() && text == kLockText;
}

Found look_at(const fs::path& path, const std::string& marker) {
  if (!fs::exists(path)) return Found::nothing;
  if (!fs::is_directory(path)) return Found::other;
  if (fs::exists(path / marker)) return Found::run;
  if (fs::is_empty(path)) return Found::empty;
  if (!is_marked(path / ".lock")) return Found::other;
  for (const auto& entry : fs::directory_iterator(path)) {
    const std::string name = entry.path().filename().string();
    if (name != ".lock" && name != kText && !is_temporary_name(name, kText) && !is_temporary_name(name, marker))
      return Found::other;
  }
  return Found::unfinished;
}

}  // namespace

RunFolder::RunFolder(fs::path path, bool resume, const FolderKind& kind) : kind_(kind), path_(std::move(path)) {
  if (!path_.has_filename()) path_ = path_.parent_path();  // a trailing slash
  const Found found = look_at(path_, kind_.marker);
  require_user(found != Found::other, path_.string() + ": exists, and is neither a " + kind_.name + " (it has no " +
                                          kind_.marker + ") nor an empty folder; choose another --out");
  require_user(found != Found::run || resume,
               path_.string() + ": exists already; continue that run with --resume, or choose another --out");
  new_ = found != Found::run;
  if (found == Found::nothing) make();
  lock();
}

void RunFolder::make() {
  // Folders on the way are ours too: the topmost that is missing.
  for (fs::path parent = fs::absolute(path_).lexically_normal(); !fs::exists(parent); parent = parent.parent_path())
    topmost_ = parent;
  std::error_code failure;
  fs::create_directories(path_, failure);
  require_user(!failure, path_.string() + ": cannot make this folder: " + failure.message());
}

void RunFolder::lock() {
  // The kernel gives the lock back however the process ends; the file may stay.
  const fs::path file = path_ / ".lock";
  lock_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  require_user(lock_ >= 0, file.string() + ": " + std::strerror(errno));
  const auto taken = [&] {
    ::close(lock_);
    return UserError(path_.string() + ": another process is training in this folder");
  };
  struct stat locked = {}, there = {};
  if (::flock(lock_, LOCK_EX | LOCK_NB) != 0 || ::fstat(lock_, &locked) != 0 || ::stat(file.c_str(), &there) != 0 ||
      locked.st_ino != there.st_ino)
    throw taken();
  if (!new_) return;
  if (locked.st_size == 0 &&
      ::pwrite(lock_, kLockText.data(), kLockText.size(), 0) != static_cast<ssize_t>(kLockText.size())) {
    const std::string reason = std::strerror(errno);
    give_back();
    throw Error("cannot write '" + file.string() + "': " + reason);
  }
  // Between the look at this folder and its lock, another process may have done all its work here.
  if (look_at(path_, kind_.marker) != Found::unfinished) throw taken();
  remove_stale(path_ / kText);
  remove_stale(path_ / kind_.marker);
}

void RunFolder::give_back() {
  std::error_code ignored;
  for (const fs::path& part : made_) fs::remove_all(part, ignored);
  bool alone = true;
  for (const auto& entry : fs::directory_iterator(path_, ignored)) alone = alone && entry.path().filename() == ".lock";
  // Where text stays that another process prepared, the lock goes on saying whose folder this is.
  if (alone) {
    fs::remove(path_ / ".lock", ignored);
    fs::path folder = fs::absolute(path_).lexically_normal();
    while (!topmost_.empty() && fs::remove(folder, ignored) && folder != topmost_) folder = folder.parent_path();
  }
  ::close(lock_);
}

RunFolder::~RunFolder() {
  if (new_ && !kept_)
    give_back();
  else
    ::close(lock_);
}

}  // namespace filigree
