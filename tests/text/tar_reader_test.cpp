#include "text/tar_reader.h"

#include <cstdio>
#include <fstream>
#include <utility>
#include <vector>

#include "archive_support.h"
#include "core/error.h"
#include "support.h"

namespace filigree {
namespace {

namespace fs = std::filesystem;

// A header and its file, padded, as POSIX says.
std::string entry(const std::string& name, char type, const std::string& bytes, const std::string& prefix = "") {
  std::string header(512, '\0');
  const auto put = [&](std::size_t at, const std::string& text) { header.replace(at, text.size(), text); };
  char size[12];
  std::snprintf(size, sizeof(size), "%011zo", bytes.size());
  put(0, name);
  put(124, size);
  header[156] = type;
  put(257, std::string("ustar\0"
                       "00",
                       8));
  put(345, prefix);
  put(148, "        ");
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  char checksum[8];
  std::snprintf(checksum, sizeof(checksum), "%06o", sum);
  put(148, checksum);
  return header + bytes + std::string((512 - bytes.size() % 512) % 512, '\0');
}

std::vector<std::pair<std::string, std::string>> read(const fs::path& path) {
  std::vector<std::pair<std::string, std::string>> files;
  TarReader reader(path);
  for (NamedFile file; reader.next(file);) files.emplace_back(file.name, file.bytes);
  return files;
}

std::string refusal(const std::string& bytes) {
  const testing::TemporaryFolder folder;
  std::ofstream(folder.path() / "a.tar", std::ios::binary) << bytes;
  try {
    read(folder.path() / "a.tar");
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(TarReader, ReadsRegularFilesUnderTheirWholeNames) {
  const std::string long_name = "deep/" + std::string(150, 'n');
  const std::string record = "path=from/pax\n";
  const std::string pax = "19 comment=nothing\n" + std::to_string(record.size() + 3) + " " + record;
  const std::string archive = entry("folder/", '5', "") + entry("folder/a.txt", '0', "alpha") + entry("link", '2', "") +
                              entry("b.txt", '0', std::string(512, 'b'), "some/prefix") +
                              entry("././@LongLink", 'L', long_name + std::string(1, '\0')) +
                              entry("cut off", '0', "long") + entry("x", 'x', pax) + entry("short", '0', "pax") +
                              entry("empty", '\0', "") + std::string(1024, '\0');
  const std::vector<std::pair<std::string, std::string>> expected = {{"folder/a.txt", "alpha"},
                                                                     {"some/prefix/b.txt", std::string(512, 'b')},
                                                                     {long_name, "long"},
                                                                     {"from/pax", "pax"},
                                                                     {"empty", ""}};
  const testing::TemporaryFolder folder;
  const std::pair<const char*, std::string> forms[] = {{"a.tar", archive},
                                                       {"a.TAR.gz", testing::gzip(archive)},
                                                       {"a.tar.xz", testing::xz(archive)},
                                                       {"a.tar.zst", testing::zstd(archive)}};
  for (const auto& [name, bytes] : forms) {
    EXPECT_TRUE(is_tar_name(name));
    std::ofstream(folder.path() / name, std::ios::binary) << bytes;
    EXPECT_EQ(read(folder.path() / name), expected) << name;
  }
  for (const char* name : {"a.txt", "a.xz", "tar", "a.tar.txt"}) EXPECT_FALSE(is_tar_name(name)) << name;
}

TEST(TarReader, ReadsWhatTarWrites) {
  const testing::TemporaryFolder folder;
  const std::string name = "in/" + std::string(90, 'd') + "/" + std::string(60, 'x');  // longer than a header's field
  fs::create_directories((folder.path() / name).parent_path());
  std::ofstream(folder.path() / name) << "first";
  std::ofstream(folder.path() / "in" / "y") << "second";
  for (const char* format : {"gnu", "pax", "ustar"}) {
    const std::string command = "cd " + folder.path().string() + " && tar --format=" + format + " -cf t.tar in";
    ASSERT_EQ(std::system(command.c_str()), 0);
    auto files = read(folder.path() / "t.tar");
    std::sort(files.begin(), files.end());
    ASSERT_EQ(files.size(), 2u) << format;
    EXPECT_EQ(files[0], std::make_pair(name, std::string("first"))) << format;
    EXPECT_EQ(files[1], std::make_pair(std::string("in/y"), std::string("second"))) << format;
  }
}

TEST(TarReader, RefusesWhatIsDamaged) {
  const std::string file = entry("a.txt", '0', std::string(700, 'a'));
  EXPECT_EQ(refusal(file), "") << "the zeros at the end may be missing";
  EXPECT_NE(refusal(file.substr(0, 600)).find("it ends within a.txt"), std::string::npos);
  EXPECT_NE(refusal(file.substr(0, 300)).find("it ends within a header"), std::string::npos);
  std::string damaged = file;
  damaged[3] = '?';
  EXPECT_NE(refusal(damaged).find("a header's checksum is wrong"), std::string::npos);
  EXPECT_NE(refusal(std::string(600, 'x')).find("a.tar: this is no tar archive"), std::string::npos);
}

}  // namespace
}  // namespace filigree
