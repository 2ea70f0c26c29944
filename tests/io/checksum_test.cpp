#include "io/checksum.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/random.h"
#include "io/atomic_file.h"
#include "support.h"

namespace filigree {
namespace {

TEST(Checksum, KnownValues) {
  EXPECT_EQ(crc32c("", 0), 0u);
  EXPECT_EQ(crc32c("123456789", 9), 0xE3069283u);
  // RFC 3720, appendix B.4: 32 bytes of zeros, of ones, and counting up.
  std::string bytes(32, '\0');
  EXPECT_EQ(crc32c(bytes.data(), 32), 0x8A9136AAu);
  bytes.assign(32, '\xff');
  EXPECT_EQ(crc32c(bytes.data(), 32), 0x62A8AB43u);
  for (std::size_t i = 0; i < 32; ++i) bytes[i] = static_cast<char>(i);
  EXPECT_EQ(crc32c(bytes.data(), 32), 0x46DD794Eu);
}

TEST(Checksum, TablesAndInstructionAgreeAndContinue) {
  const Random random(1, RandomPurpose::test);
  std::vector<std::uint8_t> bytes(300);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(random.words(i)[0]);
  for (std::size_t begin = 0; begin < 9; ++begin)
    for (std::size_t end = begin; end <= bytes.size(); end += 7) {
      const std::uint32_t whole = crc32c(bytes.data() + begin, end - begin);
      EXPECT_EQ(crc32c_portable(bytes.data() + begin, end - begin), whole);
      const std::size_t middle = (begin + end) / 2;
      const std::uint32_t first = crc32c(bytes.data() + begin, middle - begin);
      EXPECT_EQ(crc32c(bytes.data() + middle, end - middle, first), whole);
      EXPECT_EQ(crc32c_portable(bytes.data() + middle, end - middle, first), whole);
    }
}

TEST(Checksum, OfFile) {
  const testing::TemporaryFolder folder;
  write_file_atomically(folder.path() / "a", "123456789");
  write_file_atomically(folder.path() / "empty", "");
  EXPECT_EQ(crc32c_file(folder.path() / "a"), 0xE3069283u);
  EXPECT_EQ(crc32c_file(folder.path() / "empty"), 0u);
}

}  // namespace
}  // namespace filigree
