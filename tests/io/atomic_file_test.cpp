#include "io/atomic_file.h"

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>

#include "core/error.h"
#include "support.h"

namespace filigree {
namespace {

namespace fs = std::filesystem;
using ::filigree::testing::TemporaryFolder;
using ::testing::HasSubstr;

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

template <typename Problem, typename Body>
std::string message_of(Body&& body) {
  try {
    body();
  } catch (const Problem& error) {
    return error.what();
  }
  return "(no error)";
}

// Stands in for a full disk: within its life no file of this process grows beyond `bytes`.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  void (*handler_)(int);
  rlimit before_{};
};

TEST(AtomicFile, AppearsAtCommitAndReplaces) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "state.json";
  write_file_atomically(path, "old");
  {
    AtomicFile file(path);
    file.append("ne", 2);
    file.append("w", 1);
    EXPECT_EQ(read_file(path, 10), "old");
    file.commit();
    EXPECT_EQ(read_file(path, 10), "new");
    EXPECT_THROW(file.append("x", 1), Error);
    EXPECT_THROW(file.commit(), Error);
  }
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"state.json"});
}

TEST(AtomicFile, WritesAtOffsetsAndAppendsBehind) {
  const TemporaryFolder folder;
  AtomicFile file(folder.path() / "a");
  file.write_at(4, "ef", 2);
  file.write_at(0, "ab", 2);
  file.append("g", 1);
  file.commit();
  EXPECT_EQ(read_file(folder.path() / "a", 10), std::string("ab\0\0efg", 7));
}

TEST(AtomicFile, KeepsTheUsersPermissions) {
  const TemporaryFolder folder;
  const mode_t before = umask(022);
  write_file_atomically(folder.path() / "a", "");
  umask(before);
  EXPECT_EQ(fs::status(folder.path() / "a").permissions(), fs::perms(0644));
}

TEST(AtomicFile, WithoutCommitNothingRemains) {
  const TemporaryFolder folder;
  {
    AtomicFile file(folder.path() / "a");
    file.append("x", 1);
    EXPECT_EQ(names_in(folder.path()).size(), 1u);  // the temporary name
  }
  EXPECT_TRUE(names_in(folder.path()).empty());
}

TEST(AtomicFile, TwoWritersOfOneNameDoNotMeet) {
  const TemporaryFolder folder;
  AtomicFile first(folder.path() / "a");
  AtomicFile second(folder.path() / "a");
  first.append("1", 1);
  second.append("2", 1);
  second.commit();
  first.commit();
  EXPECT_EQ(read_file(folder.path() / "a", 10), "1");
  EXPECT_EQ(names_in(folder.path()).size(), 1u);
}

TEST(AtomicFile, FullDiskNamesThePathAndLeavesNothing) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "model.safetensors";
  const std::string contents(10000, 'x');
  const FileSizeLimit limit(4096);
  EXPECT_EQ(message_of<Error>([&] { write_file_atomically(path, contents); }),
            "cannot write '" + path.string() + "': File too large");
  EXPECT_TRUE(names_in(folder.path()).empty());
}

TEST(AtomicFile, MissingFolderAndFolderInTheWay) {
  const TemporaryFolder folder;
  const fs::path missing = folder.path() / "none" / "a";
  EXPECT_EQ(message_of<Error>([&] { write_file_atomically(missing, "x"); }),
            "cannot write '" + missing.string() + "': No such file or directory");
  const fs::path taken = folder.path() / "b";
  fs::create_directory(taken);
  EXPECT_EQ(message_of<Error>([&] { write_file_atomically(taken, "x"); }),
            "cannot write '" + taken.string() + "': Is a directory");
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"b"});
}

TEST(AtomicFolder, AppearsWithAllItsFiles) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "step-00000010" / "";  // a trailing slash names the same folder
  {
    AtomicFolder checkpoint(path);
    write_file_atomically(checkpoint.temporary() / "a", "1");
    fs::create_directory(checkpoint.temporary() / "below");
    write_file_atomically(checkpoint.temporary() / "below" / "b", "2");
    EXPECT_FALSE(fs::exists(path));
    checkpoint.commit();
    EXPECT_THROW(checkpoint.commit(), Error);
  }
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"step-00000010"});
  EXPECT_EQ(read_file(path / "a", 1), "1");
  EXPECT_EQ(read_file(path / "below" / "b", 1), "2");
}

TEST(AtomicFolder, WithoutCommitNothingRemains) {
  const TemporaryFolder folder;
  {
    AtomicFolder checkpoint(folder.path() / "step");
    write_file_atomically(checkpoint.temporary() / "a", "1");
  }
  EXPECT_TRUE(names_in(folder.path()).empty());
}

TEST(AtomicFolder, NeverReplacesWhatExists) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "run";
  fs::create_directory(path);
  EXPECT_EQ(message_of<Error>([&] { AtomicFolder again(path); }), "cannot create '" + path.string() + "': File exists");
  fs::remove(path);
  {
    AtomicFolder late(path);
    fs::create_directory(path);  // appears meanwhile, empty: a plain rename would replace it
    EXPECT_EQ(message_of<Error>([&] { late.commit(); }), "cannot create '" + path.string() + "': File exists");
  }
  EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"run"});
  EXPECT_EQ(message_of<Error>([&] { AtomicFolder nowhere(path / "a" / "b"); }),
            "cannot create '" + (path / "a" / "b").string() + "': No such file or directory");
}

TEST(ReadFile, LimitsAndMistakesAreNamed) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "a";
  write_file_atomically(path, "four");
  EXPECT_EQ(read_file(path, 4), "four");
  EXPECT_EQ(message_of<UserError>([&] { read_file(path, 3); }),
            "cannot read '" + path.string() + "': it has 4 bytes, at most 3 are expected");
  EXPECT_EQ(message_of<UserError>([&] { read_file(folder.path() / "b", 3); }),
            "cannot read '" + (folder.path() / "b").string() + "': No such file or directory");
  EXPECT_EQ(message_of<UserError>([&] { read_file(folder.path(), 3); }),
            "cannot read '" + folder.path().string() + "': it is a folder, a regular file is expected");
  EXPECT_EQ(message_of<UserError>([&] { read_file("/dev/null", 3); }),
            "cannot read '/dev/null': it is a device, a regular file is expected");
}

TEST(MappedFile, ShowsTheBytesAndMoves) {
  const TemporaryFolder folder;
  write_file_atomically(folder.path() / "a", "bytes");
  write_file_atomically(folder.path() / "empty", "");
  MappedFile file(folder.path() / "a");
  MappedFile moved(std::move(file));
  EXPECT_TRUE(file.bytes().empty());  // NOLINT: a moved-from object is empty
  ASSERT_EQ(moved.bytes().size(), 5u);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(moved.bytes().data()), 5), "bytes");
  MappedFile empty(folder.path() / "empty");
  EXPECT_TRUE(empty.bytes().empty());
  empty = std::move(moved);
  EXPECT_EQ(empty.bytes().size(), 5u);
  EXPECT_EQ(empty.path(), folder.path() / "a");
  EXPECT_THAT(message_of<UserError>([&] { MappedFile missing(folder.path() / "none"); }),
              HasSubstr("none': No such file or directory"));
}

}  // namespace
}  // namespace filigree
