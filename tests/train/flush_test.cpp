// What a power cut must not take is flushed to the disk, in the right order: this program's fsync takes note.
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "tiny_run.h"

namespace {

std::vector<std::string> flushed;  // names of files, in the order of the calls

}  // namespace

extern "C" int fsync(int descriptor) {
  std::error_code ignored;
  const auto link = std::filesystem::path("/proc/self/fd") / std::to_string(descriptor);
  flushed.push_back(std::filesystem::read_symlink(link, ignored).filename().string());
  return static_cast<int>(syscall(SYS_fsync, descriptor));
}

namespace filigree {
namespace {

TEST(Flush, ACheckpointIsNotAheadOfItsMetrics) {
  const testing::TemporaryFolder folder;
  flushed.clear();
  testing::train_tiny(testing::tiny_run_config(folder.path(), {"train.steps=2", "eval.every=1", "checkpoint.every=1"}),
                      folder.path() / "run");
  auto from = flushed.begin();
  for (const char* name : {"metrics.jsonl", "eval.jsonl", "state.json", "metrics.jsonl", "eval.jsonl", "state.json"}) {
    from = std::find(from, flushed.end(), name);
    ASSERT_NE(from, flushed.end()) << name << " is not flushed, or too late";
  }
}

}  // namespace
}  // namespace filigree
