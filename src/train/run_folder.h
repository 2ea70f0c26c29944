// The folder of a run while somebody trains in it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace filigree {

// What a folder holds, and the file that shows it.
struct FolderKind {
  std::string name, marker;
};
inline const FolderKind kRunFolder{"run", "config.toml"};

// Takes a run's folder, or one of another kind, for this process: one that it makes, an empty one, what a process that
// was killed during set-up left, or with `resume` a run. Unless keep() was called, a folder that was no run is given
// back as it was: a mistake that is found during set-up leaves nothing behind, and nothing is removed that this process
// has not made. Throws UserError when
//   - the folder is a run and `resume` is false, or holds anything else,
//   - another process is training in it.
class RunFolder {
 public:
  RunFolder(std::filesystem::path path, bool resume, const FolderKind& kind = kRunFolder);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  bool is_new() const { return new_; }  // there was no run in it
  // This process has put `part` into the folder: it goes, too, where the folder is not kept.
  void made(std::filesystem::path part) { made_.push_back(std::move(part)); }
  void keep() { kept_ = true; }

 private:
  void make();
  void lock();
  void give_back();

  FolderKind kind_;
  std::filesystem::path path_;
  std::filesystem::path topmost_;            // the first folder that had to be made for path_; empty: none
  std::vector<std::filesystem::path> made_;  // inside path_
  bool new_ = true;
  bool kept_ = false;
  int lock_ = -1;
};

}  // namespace filigree
