#include "data/prepare.h"

#include <omp.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "io/shards/token_shards.h"
#include "text/text_support.h"
#include "text/tokenizer.h"

namespace filigree {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Prepare : public ::testing::Test {
 protected:
  std::filesystem::path write(const std::string& name, std::string_view text) const {
    return testing::write_text(folder_.path() / "in" / name, text);
  }
  PrepareOptions options(std::vector<std::filesystem::path> text, const std::string& tokenizer) const {
    PrepareOptions result;
    result.text = std::move(text);
    result.tokenizer = tokenizer;
    result.out = folder_.path() / "out";
    return result;
  }
  std::vector<std::int32_t> ids(const std::string& split) const {
    std::vector<std::int32_t> all;
    for (const auto& path : shard_paths(folder_.path() / "out", split)) {
      const TokenShard shard(path);
      const std::size_t before = all.size();
      all.resize(before + static_cast<std::size_t>(shard.tokens()));
      shard.read(0, std::span(all).subspan(before));
    }
    return all;
  }
  std::map<std::string, std::string> files() const {
    std::map<std::string, std::string> contents;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path() / "out"))
      contents[entry.path().filename().string()] = testing::read_text(entry.path());
    return contents;
  }
  // Names in the folder that `out` goes to.
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path()))
      all.push_back(entry.path().filename());
    return all;
  }
  testing::TemporaryFolder folder_;
};

TEST_F(Prepare, OneSentence) {
  const std::string sentence = "The quick brown fox jumps over the lazy dog.";
  const DataInfo info = prepare(options({write("a.txt", sentence)}, "bytes"));
  EXPECT_EQ(info, read_data_info(folder_.path() / "out"));
  EXPECT_EQ(info.train.tokens + info.val.tokens, 45);  // with end-of-text
  EXPECT_EQ(info.train.bytes + info.val.bytes, 44);
  const auto tokenizer = load_tokenizer(folder_.path() / "out");
  EXPECT_EQ(tokenizer->identity(), info.tokenizer);
  EXPECT_EQ(tokenizer->decode(ids("train")) + tokenizer->decode(ids("val")), sentence);
  EXPECT_EQ(ids("val").back(), 256);
  EXPECT_THAT(names(), ::testing::UnorderedElementsAre("in", "out"));
}

TEST_F(Prepare, WithTokenizersOfOthers) {
  const std::filesystem::path golden = std::filesystem::path(FILIGREE_SOURCE_DIR) / "tests/golden/tokenizers";
  std::filesystem::copy_file(golden / "ranks.tiktoken", folder_.path() / "o200k_base.tiktoken");
  const std::string text = "It isn't the caf\xC3\xA9, \xFF but 12345.\n\n  The <|endoftext|> end.\n";
  for (const std::filesystem::path& tokenizer :
       {golden, golden / "llama3.json", folder_.path() / "o200k_base.tiktoken"}) {
    std::filesystem::remove_all(folder_.path() / "out");
    const DataInfo info = prepare(options({write("a.txt", text + "<|endoftext|>\n" + text)}, tokenizer.string()));
    EXPECT_EQ(info.train.documents + info.val.documents, 3);  // the second is divided
    const auto kept = load_tokenizer(folder_.path() / "out");
    EXPECT_EQ(kept->identity(), info.tokenizer);
    EXPECT_EQ(kept->identity(), load_tokenizer(tokenizer)->identity());
    const std::vector<std::int32_t> train = ids("train");
    EXPECT_EQ(std::count(train.begin(), train.end(), kept->end_of_text()), 1) << tokenizer;
    EXPECT_EQ(kept->decode(train) + kept->decode(ids("val")), text + text);
  }
}

TEST_F(Prepare, OneCharacter) {
  const DataInfo info = prepare(options({write("a.txt", "x")}, "bytes"));
  EXPECT_EQ(info.train.tokens + info.val.tokens, 2);
  EXPECT_GT(info.train.tokens, 0);
}

TEST_F(Prepare, ManyDocumentsWithATrainedTokenizer) {
  std::string text;
  std::vector<std::string> documents;
  for (std::uint32_t i = 0; i < 300; ++i) {
    documents.push_back("Document " + std::to_string(i) + "\n" + testing::sample_text(30, i) + "\n");
    text += documents.back() + "<|endoftext|>\n";
  }
  const DataInfo info = prepare(options({write("a.txt", text)}, "spm:400"));
  EXPECT_EQ(info.vocab, 400);
  EXPECT_EQ(info.train.documents, 285);
  EXPECT_EQ(info.val.documents, 15);
  const auto tokenizer = load_tokenizer(folder_.path() / "out");
  std::int64_t found = 0;
  for (const std::string split : {"train", "val"}) {
    std::vector<std::int32_t> current;
    for (const std::int32_t id : ids(split)) {
      if (id != tokenizer->end_of_text()) {
        current.push_back(id);
        continue;
      }
      const std::string document = tokenizer->decode(current);
      found += std::count(documents.begin(), documents.end(), document);
      current.clear();
    }
    EXPECT_TRUE(current.empty());  // the last document ends too
  }
  EXPECT_EQ(found, 300);
}

TEST_F(Prepare, CountsAndEntropyAreThoseOfTheTokens) {
  const DataInfo info = prepare(options({write("a.txt", testing::sample_text(2000))}, "bytes"));
  const auto val = ids("val");
  EXPECT_EQ(static_cast<std::int64_t>(val.size()), info.val.tokens);
  EXPECT_EQ(static_cast<std::int64_t>(ids("train").size()), info.train.tokens);
  EXPECT_EQ(info.val.bytes + 1, info.val.tokens);  // one end-of-text
  std::map<std::int32_t, double> counts;
  for (const std::int32_t id : val) ++counts[id];
  double entropy = 0;
  for (const auto& [id, count] : counts) {
    const double p = count / static_cast<double>(val.size());
    entropy -= p * std::log(p);
  }
  EXPECT_NEAR(info.val_unigram_entropy, entropy, 1e-12);
  EXPECT_GT(entropy, 1.0);
}

TEST_F(Prepare, EqualTextGivesEqualFilesWhateverTheThreads) {
  std::vector<std::filesystem::path> text;
  for (std::uint32_t i = 0; i < 5; ++i)
    text.push_back(write(std::to_string(i) + ".txt", testing::sample_text(20000, i)));
  const int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  prepare(options(text, "spm:350"));
  const auto first = files();
  std::filesystem::remove_all(folder_.path() / "out");
  omp_set_num_threads(3);
  prepare(options(text, "spm:350"));
  omp_set_num_threads(threads);
  EXPECT_TRUE(first == files());
  EXPECT_EQ(first.size(), 4u);
}

TEST_F(Prepare, CutsShardsAtTheLimit) {
  PrepareOptions limited = options({write("a.txt", testing::sample_text(300))}, "bytes");
  limited.shard_tokens = 500;
  const DataInfo info = prepare(limited);
  EXPECT_EQ(info.train.shards, (info.train.tokens + 499) / 500);
  EXPECT_GT(info.train.shards, 2);
  EXPECT_EQ(TokenShard(folder_.path() / "out" / "train-000001.bin").tokens(), 500);
  EXPECT_EQ(static_cast<std::int64_t>(ids("train").size()), info.train.tokens);
}

TEST_F(Prepare, ValidationTextOfItsOwn) {
  PrepareOptions own = options({write("a.txt", "all of this is for training")}, "bytes");
  own.val_text = {write("b.txt", "and this is not")};
  const DataInfo info = prepare(own);
  const auto tokenizer = bytes_tokenizer();
  EXPECT_EQ(tokenizer->decode(ids("train")), "all of this is for training");
  EXPECT_EQ(tokenizer->decode(ids("val")), "and this is not");
  EXPECT_EQ(info.val_sources.size(), 1u);
}

TEST_F(Prepare, WithoutValidation) {
  PrepareOptions all = options({write("a.txt", "all of this is for training")}, "bytes");
  all.val_fraction = 0.0;
  EXPECT_EQ(prepare(all).val, SplitInfo());
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / "out" / "val-000000.bin"));
}

TEST_F(Prepare, ATokenizerFromAFileGivesTheSameTokens) {
  const auto text = write("a.txt", testing::sample_text(3000));
  const DataInfo trained = prepare(options({text}, "spm:350"));
  const auto train = ids("train");
  std::filesystem::rename(folder_.path() / "out", folder_.path() / "first");
  const DataInfo again = prepare(options({text}, (folder_.path() / "first" / "tokenizer.model").string()));
  EXPECT_EQ(again.tokenizer, trained.tokenizer);
  EXPECT_EQ(ids("train"), train);
}

TEST_F(Prepare, MistakesSaySoAndLeaveNothing) {
  const auto text = write("a.txt", testing::sample_text(100));
  const auto fails = [&](const PrepareOptions& wrong, const auto& matcher) {
    EXPECT_USER_ERROR(prepare(wrong), matcher);
    EXPECT_THAT(names(), ::testing::ElementsAre("in"));
  };
  fails(options({}, "bytes"), HasSubstr("no text is given"));
  fails(options({folder_.path() / "none.txt"}, "bytes"), HasSubstr("none.txt"));
  fails(options({text}, "none.model"), AllOf(HasSubstr("none.model"), HasSubstr("no such file")));
  fails(options({text}, "spm:9999"), AllOf(HasSubstr("spm:9999"), HasSubstr("largest size")));
  fails(options({text, write("b.txt", std::string_view("a\0b", 3))}, "bytes"),
        AllOf(HasSubstr("b.txt"), HasSubstr("NUL")));
  fails(options({write("c.txt", "")}, "bytes"), HasSubstr("no text"));
  PrepareOptions fraction = options({text}, "bytes");
  fraction.val_fraction = 0.7;
  fails(fraction, AllOf(HasSubstr("0.7"), HasSubstr("0 to 0.5")));
  PrepareOptions parent = options({text}, "bytes");
  parent.out = folder_.path() / "no" / "out";
  EXPECT_NO_THROW(prepare(parent)) << "folders on the way are made";
}

TEST_F(Prepare, NeverOverwrites) {
  testing::write_text(folder_.path() / "out" / "mine", "precious");
  EXPECT_USER_ERROR(prepare(options({write("a.txt", "text")}, "bytes")),
                    AllOf(HasSubstr("out"), HasSubstr("exists already")));
  EXPECT_EQ(testing::read_text(folder_.path() / "out" / "mine"), "precious");
}

TEST_F(Prepare, InterruptedLeavesNothing) {
  for (const int after : {0, 1, 4, 9}) {
    int asked = 0;
    PrepareOptions stopped = options(
        {write("a.txt", testing::sample_text(1000)), write("b.txt", "two"), write("c.txt", "three")}, "spm:300");
    stopped.stop = [&] { return asked++ == after; };
    EXPECT_THROW(prepare(stopped), Interrupted) << after;
    EXPECT_THAT(names(), ::testing::ElementsAre("in"));
  }
}

}  // namespace
}  // namespace filigree
