#include "io/shards/token_shards.h"

#include "io/checksum.h"

#include <array>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "core/error.h"
#include "support.h"
#include "text/text_support.h"

namespace filigree {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A file as another program would write it.
std::string shard_bytes(std::array<std::int32_t, 3> header, std::string_view ids) {
  std::string bytes(1024, '\0');
  std::memcpy(bytes.data(), header.data(), sizeof header);
  return bytes.append(ids);
}

class TokenShards : public ::testing::Test {
 protected:
  std::filesystem::path write(std::string_view bytes) const { return testing::write_text(path_, bytes); }
  std::vector<std::int32_t> read_all(const std::filesystem::path& path) const {
    const TokenShard shard(path);
    std::vector<std::int32_t> ids(static_cast<std::size_t>(shard.tokens()));
    shard.read(0, ids);
    return ids;
  }
  std::int64_t files() const { return std::distance(std::filesystem::directory_iterator(folder_.path()), {}); }
  testing::TemporaryFolder folder_;
  std::filesystem::path path_ = folder_.path() / "train-000000.bin";
};

TEST_F(TokenShards, ReadsSixteenBitFiles) {
  using namespace std::string_view_literals;
  write(shard_bytes({20240520, 1, 3}, "\x05\0\xFF\xFF\x00\x01"sv));
  EXPECT_EQ(read_all(path_), (std::vector<std::int32_t>{5, 65535, 256}));
}

TEST_F(TokenShards, ReadsThirtyTwoBitFiles) {
  using namespace std::string_view_literals;
  write(shard_bytes({20240801, 7, 2}, "\x05\0\0\0\x01\xF5\x01\0"sv));
  EXPECT_EQ(read_all(path_), (std::vector<std::int32_t>{5, 128257}));
}

TEST_F(TokenShards, RoundTripInTheNarrowestFormat) {
  for (const std::int64_t vocab : {257, 65536, 65537, 128256}) {
    std::vector<std::int32_t> ids(5000);
    for (std::size_t i = 0; i < ids.size(); ++i)
      ids[i] = static_cast<std::int32_t>(Random(1, RandomPurpose::test).below(i, static_cast<std::uint32_t>(vocab)));
    ids[0] = static_cast<std::int32_t>(vocab - 1);
    TokenShardWriter writer(path_, vocab);
    writer.append(std::span(ids).first(1));
    writer.append({});
    writer.append(std::span(ids).subspan(1));
    EXPECT_EQ(writer.tokens(), 5000);
    writer.finish();
    EXPECT_EQ(read_all(path_), ids);
    EXPECT_EQ(std::filesystem::file_size(path_), 1024u + 5000u * (vocab <= 65536 ? 2 : 4));
    std::int32_t magic = 0;
    std::memcpy(&magic, testing::read_text(path_).data(), 4);
    EXPECT_EQ(magic, vocab <= 65536 ? 20240520 : 20240801);
    const std::string stored = testing::read_text(path_).substr(1024);
    EXPECT_EQ(TokenShard(path_).check_ids(vocab), crc32c(stored.data(), stored.size()));
    EXPECT_EQ(TokenShard(path_).check_ids(vocab, 7), crc32c(stored.data(), stored.size(), 7));
    EXPECT_THROW(TokenShard(path_).check_ids(vocab - 1), UserError);
    std::filesystem::remove(path_);
  }
}

TEST_F(TokenShards, ReadsAnyPartAndNothingOutside) {
  TokenShardWriter writer(path_, 100);
  writer.append(std::vector<std::int32_t>{1, 2, 3, 4});
  writer.finish();
  const TokenShard shard(path_);
  std::vector<std::int32_t> ids(2);
  shard.read(1, ids);
  EXPECT_EQ(ids, (std::vector<std::int32_t>{2, 3}));
  shard.read(4, {});
  EXPECT_THROW(shard.read(3, ids), Error);
  EXPECT_THROW(shard.read(-1, ids), Error);
  EXPECT_THROW(shard.read(5, {}), Error);
}

TEST_F(TokenShards, UnfinishedOnesLeaveNothing) {
  {
    TokenShardWriter writer(path_, 100);
    writer.append(std::vector<std::int32_t>(1000000, 7));  // more than is kept back
    EXPECT_FALSE(std::filesystem::exists(path_));
  }
  EXPECT_EQ(files(), 0);
}

TEST_F(TokenShards, WriterRefusesIdsOutsideTheVocabulary) {
  TokenShardWriter writer(path_, 100);
  EXPECT_THROW(writer.append(std::vector<std::int32_t>{1, 100}), Error);
  EXPECT_THROW(writer.append(std::vector<std::int32_t>{-1}), Error);
}

TEST_F(TokenShards, ForeignIdsAreNamedWithTheirPlace) {
  for (const std::int64_t vocab : {1000, 70000}) {
    std::vector<std::int32_t> ids(200000, 5);
    ids[131072] = ids[199999] = 999;
    TokenShardWriter writer(path_, vocab);
    writer.append(ids);
    writer.finish();
    EXPECT_USER_ERROR(
        TokenShard(path_).check_ids(999),
        AllOf(HasSubstr("train-000000.bin"), HasSubstr("token 131072 is 999"), HasSubstr("has 999 entries")));
    std::filesystem::remove(path_);
  }
  using namespace std::string_view_literals;
  write(shard_bytes({20240801, 7, 2}, "\x05\0\0\0\xFF\xFF\xFF\xFF"sv));  // more than int32 holds
  EXPECT_USER_ERROR(TokenShard(path_).check_ids(128256), HasSubstr("token 1 is 4294967295"));
}

TEST_F(TokenShards, HostileHeadersAreRefused) {
  const auto open = [&](std::string_view bytes) { const TokenShard shard(write(bytes)); };
  EXPECT_USER_ERROR(open(""), HasSubstr("0 bytes, but the header alone has 1024"));
  EXPECT_USER_ERROR(open(std::string(1023, '\0')), HasSubstr("1023 bytes"));
  EXPECT_USER_ERROR(open(shard_bytes({1, 1, 0}, "")),
                    AllOf(HasSubstr("begins with 1,"), HasSubstr("20240520 or 20240801")));
  EXPECT_USER_ERROR(open(shard_bytes({20240520, 2, 0}, "")), AllOf(HasSubstr("version 2"), HasSubstr("1 is")));
  EXPECT_USER_ERROR(open(shard_bytes({20240801, 1, 0}, "")), AllOf(HasSubstr("version 1"), HasSubstr("7 is")));
  EXPECT_USER_ERROR(open(shard_bytes({20240520, 1, -1}, "")), HasSubstr("-1 tokens"));
  EXPECT_USER_ERROR(open(shard_bytes({20240520, 1, 3}, "abcd")),
                    AllOf(HasSubstr("3 tokens, so 1030 bytes"), HasSubstr("has 1028")));
  EXPECT_USER_ERROR(open(shard_bytes({20240520, 1, 1}, "abc")), HasSubstr("truncated or damaged"));
  EXPECT_USER_ERROR(open(shard_bytes({20240801, 7, 2147483647}, "abcd")), HasSubstr("8589935612 bytes"));
  EXPECT_USER_ERROR(const TokenShard shard(folder_.path() / "none.bin"), HasSubstr("none.bin"));
  EXPECT_USER_ERROR(const TokenShard shard(folder_.path()), HasSubstr("folder"));
  EXPECT_NO_THROW(open(shard_bytes({20240520, 1, 0}, "")));
}

}  // namespace
}  // namespace filigree
