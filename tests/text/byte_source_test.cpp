#include "text/byte_source.h"

#include <sys/stat.h>

#include <string>

#include "archive_support.h"
#include "text_support.h"

namespace filigree {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

struct Kind {
  const char* extension;
  std::string (*compress)(std::string_view);
  const char* name;
};

std::string read_all(const std::filesystem::path& path, std::size_t step) {
  const auto source = open_byte_source(path);
  std::string all, part(step, '\0');
  for (std::size_t got; (got = source->read(part.data(), step)) > 0;) all.append(part, 0, got);
  EXPECT_EQ(source->read(part.data(), step), 0u);  // the end stays the end
  EXPECT_EQ(source->position(), static_cast<std::int64_t>(std::filesystem::file_size(path)));
  return all;
}

class Archives : public ::testing::TestWithParam<Kind> {
 protected:
  std::filesystem::path write(std::string_view bytes) const {
    return testing::write_text(folder_.path() / (std::string("text.txt") + GetParam().extension), bytes);
  }
  testing::TemporaryFolder folder_;
};

TEST_P(Archives, ReadInPartsOfAnySize) {
  const std::string text = testing::sample_text(150000);  // several windows of input and output
  const auto path = write(GetParam().compress(text));
  for (const std::size_t step : {4097u, 1u << 20}) EXPECT_EQ(read_all(path, step), text);
}

TEST_P(Archives, OfNothingAreEmpty) {
  EXPECT_EQ(read_all(write(GetParam().compress("")), 100), "");
}

TEST_P(Archives, OfSeveralMembersReadAsOne) {
  const std::string bytes = GetParam().compress("first\n") + GetParam().compress("") + GetParam().compress("second\n");
  EXPECT_EQ(read_all(write(bytes), 3), "first\nsecond\n");
}

TEST_P(Archives, TruncatedAnywhereSaySo) {
  const std::string whole = GetParam().compress(testing::sample_text(2000));
  for (std::size_t size = 0; size < whole.size(); size += size < 30 ? 1 : whole.size() / 23)
    EXPECT_USER_ERROR(
        read_all(write(std::string_view(whole).substr(0, size)), 1000),
        AllOf(HasSubstr(GetParam().extension), HasSubstr(std::string(GetParam().name) + " archive is truncated")));
}

TEST_P(Archives, DamagedOnesSaySo) {
  std::string bytes = GetParam().compress(testing::sample_text(5000));
  for (std::size_t at = bytes.size() / 2; at < bytes.size() / 2 + 20; ++at) bytes[at] = static_cast<char>(~bytes[at]);
  EXPECT_USER_ERROR(read_all(write(bytes), 1000), AnyOf(HasSubstr("damaged"), HasSubstr("truncated")));
}

TEST_P(Archives, OtherFilesUnderTheirNameAreRefused) {
  EXPECT_USER_ERROR(read_all(write("just some words, and enough of them to be sure"), 1000),
                    AllOf(HasSubstr(GetParam().name), HasSubstr("is no ")));
}

INSTANTIATE_TEST_SUITE_P(Kinds, Archives,
                         ::testing::Values(Kind{".gz", testing::gzip, "gzip"}, Kind{".xz", testing::xz, "xz"},
                                           Kind{".zst", testing::zstd, "zstd"}),
                         [](const auto& kind) { return std::string(kind.param.name); });

TEST(ByteSource, ReadsPlainFiles) {
  const testing::TemporaryFolder folder;
  const std::string text = testing::sample_text(50000);
  EXPECT_EQ(read_all(testing::write_text(folder.path() / "a.txt", text), 999), text);
}

TEST(ByteSource, KnowsExtensionsInEitherCase) {
  EXPECT_EQ(compression_of("a.txt.GZ"), Compression::gzip);
  EXPECT_EQ(compression_of("a.xz"), Compression::xz);
  EXPECT_EQ(compression_of("dir.gz/a.Zst"), Compression::zstd);
  EXPECT_EQ(compression_of("dir.gz/a.txt"), Compression::none);
}

TEST(ByteSource, RefusesWhatIsNoFile) {
  const testing::TemporaryFolder folder;
  EXPECT_USER_ERROR(open_byte_source(folder.path() / "none.txt"), HasSubstr("no such file"));
  EXPECT_USER_ERROR(open_byte_source(folder.path()), HasSubstr("not a regular file"));
  ASSERT_EQ(mkfifo((folder.path() / "pipe").c_str(), 0600), 0);
  EXPECT_USER_ERROR(open_byte_source(folder.path() / "pipe"), HasSubstr("a pipe cannot be used"));
}

}  // namespace
}  // namespace filigree
