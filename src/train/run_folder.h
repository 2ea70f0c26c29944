// The folder of a run, or of several that belong together, while somebody trains in it.
#pragma once

#include <filesystem>
#include <string>

namespace filigree {

// What a folder holds, and the file that shows it.
struct FolderKind {
  std::string name, marker;
};
inline const FolderKind kRunFolder{"run", "config.toml"};

// Takes a run's folder for this process. A new one is made, and removed again unless keep() was called: a mistake that
// is found during set-up leaves nothing behind. Throws UserError when
//   - the folder exists and `resume` is false, or exists without the marker of its kind,
//   - another process is training in it.
class RunFolder {
 public:
  RunFolder(std::filesystem::path path, bool resume, const FolderKind& kind = kRunFolder);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  bool is_new() const { return created_; }
  void keep() { kept_ = true; }

 private:
  void lock();

  std::filesystem::path path_;
  std::filesystem::path topmost_;  // the first folder that had to be made for path_
  bool created_ = false;
  bool kept_ = false;
  int lock_ = -1;
};

}  // namespace filigree
