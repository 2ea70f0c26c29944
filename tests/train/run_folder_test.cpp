#include "train/run_folder.h"

#include <fstream>

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

TEST(RunFolder, TakesOverWhatAKilledSetUpLeft) {
  const testing::TemporaryFolder parent;
  const fs::path path = parent.path() / "run";
  fs::create_directories(path / "data");
  std::ofstream(path / ".lock").flush();
  EXPECT_TRUE(RunFolder(path, false).is_new());
  EXPECT_FALSE(fs::exists(path));
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
