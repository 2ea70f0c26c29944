#include "data/training_data.h"

#include <string>

#include "data/data_info.h"
#include "data/prepare.h"
#include "io/shards/token_shards.h"
#include "text/text_support.h"

namespace filigree {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class TrainingDataTest : public ::testing::Test {
 protected:
  TrainingDataTest() { std::filesystem::create_directory(run_); }

  TrainingData find(std::vector<std::string> train, std::vector<std::string> val = {},
                    std::string tokenizer = "") const {
    DataConfig config;
    config.train = std::move(train);
    config.val = std::move(val);
    config.tokenizer = std::move(tokenizer);
    return find_training_data(config, {.run_folder = run_, .progress = nullptr, .stop = {}});
  }
  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  std::string text(const std::string& name, std::uint32_t stream = 0) const {
    return testing::write_text(folder_.path() / name, testing::sample_text(3000, stream)).string();
  }
  DataInfo prepared(const std::string& name, const std::string& tokenizer = "bytes") const {
    PrepareOptions options;
    options.text = {text(name + ".txt")};
    options.tokenizer = tokenizer;
    options.out = folder_.path() / name;
    return prepare(options);
  }
  void foreign(const std::string& name) const {
    TokenShardWriter writer(folder_.path() / name, 50257);
    writer.append(std::vector<std::int32_t>(100, 50256));
    writer.finish();
  }
  testing::TemporaryFolder folder_;
  std::filesystem::path run_ = folder_.path() / "run";
};

TEST_F(TrainingDataTest, ADataFolderHasEverything) {
  const DataInfo info = prepared("d");
  const TrainingData data = find({path("d")});
  EXPECT_THAT(data.train, ElementsAre(path("d/train-000000.bin")));
  EXPECT_THAT(data.val, ElementsAre(path("d/val-000000.bin")));
  EXPECT_EQ(data.vocab(), 257);
  EXPECT_EQ(data.tokenizer->identity(), info.tokenizer);
  EXPECT_DOUBLE_EQ(data.val_bytes_per_token,
                   static_cast<double>(info.val.bytes) / static_cast<double>(info.val.tokens));
  EXPECT_DOUBLE_EQ(data.val_unigram_entropy, info.val_unigram_entropy);
}

TEST_F(TrainingDataTest, GlobsOfItsShardsAreTheSame) {
  prepared("d", "spm:300");
  const TrainingData data = find({path("d/train-*.bin")}, {path("d/val-*.bin")}, "spm:300");
  EXPECT_THAT(data.train, ElementsAre(path("d/train-000000.bin")));
  EXPECT_THAT(data.val, ElementsAre(path("d/val-000000.bin")));
  EXPECT_EQ(data.vocab(), 300);
  EXPECT_GT(data.val_bytes_per_token, 1.0);
}

// A path that exists is itself, whatever *, ? and [ in it might match.
TEST_F(TrainingDataTest, NamesWithGlobCharactersAreTakenAsTheyAre) {
  for (const std::string name : {"d [1]", "d*", "wh?t", "a[b]*c", "back\\slash"}) {
    prepared(name);
    prepared(name + "/../other " + name);  // matched by some of them
    EXPECT_THAT(find({path(name)}).train, ElementsAre(path(name + "/train-000000.bin"))) << name;
    EXPECT_THAT(find({path(name + "/train-000000.bin")}).train, ElementsAre(path(name + "/train-000000.bin"))) << name;
    const TrainingData globs = find({path(name + "/train-*.bin")}, {path(name + "/va?-*.bin")});
    EXPECT_THAT(globs.train, ElementsAre(path(name + "/train-000000.bin"))) << name;
    EXPECT_THAT(globs.val, ElementsAre(path(name + "/val-000000.bin"))) << name;
    EXPECT_THAT(find({text(name + ".txt")}, {}, "bytes").val.size(), 1u) << name;
    std::filesystem::remove_all(run_ / "data");
  }
  EXPECT_THAT(expand_glob(path("wh[?]t")), ElementsAre(path("wh?t")));  // no such path: a pattern
}

TEST_F(TrainingDataTest, ForeignShardsNeedNothingElse) {
  foreign("a_train_1.bin");
  foreign("a_train_2.bin");
  const TrainingData data = find({path("a_train_*.bin")});
  EXPECT_THAT(data.train, ElementsAre(path("a_train_1.bin"), path("a_train_2.bin")));
  EXPECT_THAT(data.val, IsEmpty());
  EXPECT_EQ(data.tokenizer, nullptr);
  EXPECT_EQ(data.vocab(), 0);
  EXPECT_EQ(data.val_bytes_per_token, 0.0);
  EXPECT_EQ(find({path("a_train_1.bin")}, {}, "bytes").vocab(), 257);
}

TEST_F(TrainingDataTest, TextIsPreparedIntoTheRunOnce) {
  const std::string train = text("t.txt"), val = text("v.txt", 1);
  const TrainingData data = find({train}, {val}, "bytes");
  EXPECT_THAT(data.train, ElementsAre((run_ / "data/train-000000.bin").string()));
  EXPECT_EQ(read_data_info(run_ / "data").val.bytes, static_cast<std::int64_t>(std::filesystem::file_size(val)));
  const auto written = std::filesystem::last_write_time(run_ / "data/train-000000.bin");
  EXPECT_EQ(find({train}, {val}, "bytes").train, data.train);  // resumed
  EXPECT_EQ(std::filesystem::last_write_time(run_ / "data/train-000000.bin"), written);
  EXPECT_USER_ERROR(find({val}, {val}, "bytes"), HasSubstr("prepared from other files"));
  EXPECT_USER_ERROR(find({train}, {val}, "spm:300"), HasSubstr("another tokenizer"));
}

TEST_F(TrainingDataTest, PreparedTextMayMoveButNotChange) {
  const std::string train = text("t.txt"), val = text("v/v.txt", 1);
  find({train}, {path("v")}, "bytes");
  std::filesystem::create_directory(path("elsewhere"));
  for (const char* name : {"t.txt", "v"}) std::filesystem::rename(path(name), path(std::string("elsewhere/") + name));
  EXPECT_EQ(find({path("elsewhere/t.txt")}, {path("elsewhere/v")}, "bytes").val.size(), 1u);
  std::ofstream(path("elsewhere/t.txt"), std::ios::app) << "More.";
  EXPECT_USER_ERROR(find({path("elsewhere/t.txt")}, {path("elsewhere/v")}, "bytes"),
                    AllOf(HasSubstr("was prepared from"), HasSubstr("restore the text")));
  DataConfig scored;
  scored.train = {path("elsewhere/t.txt")};
  scored.val = {path("elsewhere/v")};
  scored.tokenizer = "bytes";
  EXPECT_NO_THROW(
      find_training_data(scored, {.run_folder = run_, .progress = nullptr, .stop = {}, .may_prepare = false}));
}

TEST_F(TrainingDataTest, TheTokenizerOfPreparedTextIsComparedItself) {
  prepared("d", "spm:300");
  const std::string words = text("t.txt");
  find({words}, {}, path("d/tokenizer.model"));
  std::filesystem::copy_file(path("d/tokenizer.model"), path("moved.model"));
  EXPECT_EQ(find({words}, {}, path("moved.model")).vocab(), 300);
  EXPECT_USER_ERROR(find({words}, {}, "bytes"), HasSubstr("another tokenizer"));
}

TEST_F(TrainingDataTest, OfTextAloneAShareIsHeldOut) {
  const TrainingData data = find({text("t.txt")}, {}, "bytes");
  EXPECT_EQ(data.val.size(), 1u);
  EXPECT_GT(read_data_info(run_ / "data").val.tokens, 500);
}

TEST_F(TrainingDataTest, MistakesSaySo) {
  prepared("d");
  prepared("e", "spm:300");
  foreign("f.bin");
  const std::string words = text("t.txt");
  EXPECT_USER_ERROR(find({}), HasSubstr("data.train is missing"));
  EXPECT_USER_ERROR(find({path("none*.bin")}), AllOf(HasSubstr("data.train: nothing matches"), HasSubstr("none*.bin")));
  EXPECT_USER_ERROR(find({words, path("f.bin")}), AllOf(HasSubstr("f.bin"), HasSubstr("t.txt"), HasSubstr("only one")));
  EXPECT_USER_ERROR(find({path("d")}, {words}), HasSubstr("both must be shards, or both text"));
  EXPECT_USER_ERROR(find({words}, {path("d")}, "bytes"), HasSubstr("both must be shards, or both text"));
  EXPECT_USER_ERROR(find({words}), HasSubstr("data.tokenizer is missing"));
  EXPECT_USER_ERROR(find({path("d")}, {}, "spm:300"), AllOf(HasSubstr("\"spm:300\""), HasSubstr("made by bytes-")));
  EXPECT_USER_ERROR(find({path("d")}, {path("e")}), HasSubstr("they must be the same"));
  EXPECT_USER_ERROR(find({path("f.bin")}, {}, "spm:300"), HasSubstr("holds tokens already"));
  std::filesystem::copy_file(path("e/tokenizer.model"), path("d/tokenizer.model"),
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_USER_ERROR(find({path("d")}), HasSubstr("but data.json says"));
}

}  // namespace
}  // namespace filigree
