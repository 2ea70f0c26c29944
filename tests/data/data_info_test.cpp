#include "data/data_info.h"

#include <string>

#include "text/text_support.h"

namespace filigree {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

DataInfo example() {
  DataInfo info;
  info.tokenizer = "bytes-0123456789abcdef";
  info.vocab = 257;
  info.train = {.documents = 3, .bytes = 1000, .tokens = 1003, .shards = 2};
  info.val = {.documents = 1, .bytes = 100, .tokens = 101, .shards = 1};
  info.val_unigram_entropy = 3.0625;
  info.tokenizer_spec = "bytes";
  info.val_fraction = 0.05;
  info.sources = {"a.txt", "caf\xC3\xA9/b"};
  info.source_bytes = 1100;
  return info;
}

TEST(DataInfo, RoundTrips) {
  const testing::TemporaryFolder folder;
  write_data_info(folder.path(), example());
  EXPECT_EQ(read_data_info(folder.path()), example());
}

TEST(DataInfo, SaysWhatIsWrongWithTheFile) {
  const testing::TemporaryFolder folder;
  EXPECT_USER_ERROR(read_data_info(folder.path()), HasSubstr("data.json"));
  const auto path = folder.path() / "data.json";
  testing::write_text(path, "{\"vocab\": 5}");
  EXPECT_USER_ERROR(read_data_info(folder.path()), AllOf(HasSubstr("data.json"), HasSubstr("tokenizer")));
  testing::write_text(path, "no JSON");
  EXPECT_USER_ERROR(read_data_info(folder.path()), HasSubstr("not the data.json"));
  DataInfo info = example();
  info.val.shards = -1;
  write_data_info(folder.path(), info);
  EXPECT_USER_ERROR(read_data_info(folder.path()), HasSubstr("out of range"));
}

TEST(DataInfo, NamesItsShards) {
  const testing::TemporaryFolder folder;
  write_data_info(folder.path(), example());
  testing::write_text(folder.path() / "train-000000.bin", "");
  EXPECT_USER_ERROR(shard_paths(folder.path(), "train"), AllOf(HasSubstr("train-000001.bin"), HasSubstr("missing")));
  testing::write_text(folder.path() / "train-000001.bin", "");
  EXPECT_THAT(shard_paths(folder.path(), "train"),
              ::testing::ElementsAre(folder.path() / "train-000000.bin", folder.path() / "train-000001.bin"));
}

}  // namespace
}  // namespace filigree
