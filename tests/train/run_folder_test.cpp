#include "train/run_folder.h"

#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "core/error.h"
#include "support.h"

namespace filigree {
namespace {

namespace fs = std::filesystem;

TEST(RunFolder, IsRemovedUnlessKept) {
  const testing::TemporaryFolder parent;
  const fs::path path = parent.path() / "a" / "run";
  { const RunFolder folder(path, false); }
  EXPECT_FALSE(fs::exists(path));
  EXPECT_FALSE(fs::exists(parent.path() / "a")) << "a folder on the way was left behind";
  {
    RunFolder folder(path, true);  // --resume where nothing is starts
    EXPECT_TRUE(folder.is_new());
    folder.keep();
  }
  EXPECT_TRUE(fs::exists(path));
}

// As a process leaves it that is killed while it prepares text, or after that.
void write_unfinished(const fs::path& path) {
  {
    RunFolder folder(path, false);
    fs::copy_file(path / ".lock", path / "copy");
  }
  fs::rename(path / "copy", path / ".lock");
}

std::string stale(const std::string& name) {
  const pid_t dead = fork();
  if (dead == 0) _exit(0);
  waitpid(dead, nullptr, 0);
  return name + "." + std::to_string(dead) + "-0.tmp";
}

TEST(RunFolder, TakesOverWhatAKilledSetUpLeft) {
  const testing::TemporaryFolder parent;
  const fs::path path = parent.path() / "run";
  write_unfinished(path);
  fs::create_directories(path / stale("data") / "inside");
  std::ofstream(path / stale("config.toml")) << "[run]";
  EXPECT_TRUE(RunFolder(path, false).is_new());
  EXPECT_TRUE(fs::exists(path)) << "another process made it";
  EXPECT_TRUE(fs::is_empty(path));
}

TEST(RunFolder, TextThatAnotherProcessPreparedStays) {
  const testing::TemporaryFolder parent;
  const fs::path path = parent.path() / "run";
  write_unfinished(path);
  fs::create_directories(path / "data");
  std::ofstream(path / "data" / "train-000000.bin") << "1";
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(RunFolder(path, false).is_new());
    EXPECT_TRUE(fs::exists(path / "data" / "train-000000.bin"));
  }
}

TEST(RunFolder, AnEmptyFolderIsUsedAndGivenBack) {
  const testing::TemporaryFolder parent;
  for (const bool resume : {false, true}) {
    const RunFolder folder(parent.path(), resume);
    EXPECT_TRUE(folder.is_new());
  }
  EXPECT_TRUE(fs::exists(parent.path()));
  EXPECT_TRUE(fs::is_empty(parent.path()));
}

TEST(RunFolder, RemovesWhatThisProcessMade) {
  const testing::TemporaryFolder parent;
  const fs::path path = parent.path() / "run";
  {
    RunFolder folder(path, false);
    fs::create_directories(path / "data");
    folder.made(path / "data");
  }
  EXPECT_FALSE(fs::exists(path));
  {
    RunFolder folder(path, false);
    std::ofstream(path / "notes.txt") << "mine";  // somebody else's
  }
  EXPECT_TRUE(fs::exists(path / "notes.txt"));
}

// Other programs call their locks and folders like that, too.
TEST(RunFolder, RefusesFoldersOfOthersAndLeavesThemAlone) {
  const testing::TemporaryFolder parent;
  for (const char* lock : {"", "12345\n", "filigree"}) {
    const fs::path path = parent.path() / "project";
    fs::create_directories(path / "data");
    std::ofstream(path / ".lock") << lock;
    std::ofstream(path / "data" / "file.txt") << "mine";
    for (const bool resume : {false, true}) {
      try {
        RunFolder(path, resume);
        ADD_FAILURE() << "accepted";
      } catch (const UserError& error) {
        EXPECT_NE(std::string(error.what()).find("neither a run"), std::string::npos) << error.what();
      }
    }
    EXPECT_TRUE(fs::exists(path / "data" / "file.txt"));
    EXPECT_TRUE(fs::exists(path / ".lock"));
    fs::remove_all(path);
  }
}

TEST(RunFolder, OneThatHasMoreThanAnUnfinishedOneIsRefused) {
  const testing::TemporaryFolder parent;
  const fs::path path = parent.path() / "run";
  write_unfinished(path);
  std::ofstream(path / "notes.tmp") << "mine";
  EXPECT_THROW(RunFolder(path, false), UserError);
  EXPECT_TRUE(fs::exists(path / "notes.tmp"));
}

TEST(RunFolder, IsForOneProcessAtATime) {
  const testing::TemporaryFolder parent;
  const fs::path path = parent.path() / "run";
  RunFolder folder(path, false);
  folder.keep();
  std::ofstream(path / "config.toml") << "";
  EXPECT_THROW(RunFolder(path, true), UserError);
  EXPECT_TRUE(fs::exists(path / "config.toml"));
}

}  // namespace
}  // namespace filigree
