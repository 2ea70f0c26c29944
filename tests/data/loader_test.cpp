#include "data/loader.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "text/text_support.h"

namespace filigree {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Batch {
  std::vector<std::int32_t> tokens, targets;
  std::int64_t valid = 0;
};

Batch batch_of(const Loader& loader, std::int64_t first, std::int64_t count) {
  const auto size = static_cast<std::size_t>(count * loader.context());
  Batch batch{std::vector<std::int32_t>(size, -7), std::vector<std::int32_t>(size, -7), 0};
  batch.valid = loader.batch(first, count, batch.tokens.data(), batch.targets.data());
  return batch;
}

// Token i has the id i, so that a target names its place.
class LoaderTest : public ::testing::Test {
 protected:
  DatasetView data(std::int64_t tokens, std::vector<std::int64_t> cuts = {}) const {
    cuts.push_back(tokens);
    std::vector<std::filesystem::path> paths;
    std::int64_t begin = 0;
    for (const std::int64_t end : cuts) {
      paths.push_back(folder_.path() / ("shard-" + std::to_string(paths.size()) + ".bin"));
      TokenShardWriter writer(paths.back(), 60000);
      for (std::int64_t id = begin; id < end; ++id)
        writer.append(std::vector<std::int32_t>{static_cast<std::int32_t>(id)});
      writer.finish();
      begin = end;
    }
    return DatasetView(paths, 60000);
  }
  testing::TemporaryFolder folder_;
};

TEST_F(LoaderTest, AFingerprintIsThatOfTheTokensInTheirOrder) {
  const DataFingerprint print = data(50000).fingerprint();
  EXPECT_EQ(print.tokens, 50000);
  EXPECT_EQ(data(50000, {1, 40000}).fingerprint(), print) << "in other files";
  EXPECT_NE(data(49999).fingerprint(), print);
  const auto paths = [&](int first, int second) {
    return std::vector<std::filesystem::path>{folder_.path() / ("shard-" + std::to_string(first) + ".bin"),
                                              folder_.path() / ("shard-" + std::to_string(second) + ".bin")};
  };
  data(10, {5});
  EXPECT_NE(DatasetView(paths(0, 1), 60000).fingerprint(), DatasetView(paths(1, 0), 60000).fingerprint());
}

TEST_F(LoaderTest, EveryTokenIsATargetOnceAnEpoch) {
  for (const std::int64_t tokens : {9, 10, 16, 17, 18, 100, 257}) {
    const DatasetView view = data(tokens);
    const Loader loader(view, 8, SampleOrder::shuffled, 3);
    for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
      const Batch batch = batch_of(loader, epoch * loader.sequences(), loader.sequences());
      std::map<std::int32_t, int> seen;
      for (std::size_t i = 0; i < batch.targets.size(); ++i) {
        if (batch.targets[i] < 0) continue;
        ++seen[batch.targets[i]];
        ASSERT_EQ(batch.tokens[i] + 1, batch.targets[i]);  // the successor
      }
      EXPECT_EQ(static_cast<std::int64_t>(seen.size()), tokens - 1) << tokens;
      for (const auto& [target, times] : seen) ASSERT_EQ(times, 1) << target;
      EXPECT_EQ(batch.valid, tokens - 1);
      EXPECT_EQ(loader.targets(), tokens - 1);
    }
  }
}

TEST_F(LoaderTest, CountsTargetsWithoutReadingThem) {
  for (const std::int64_t tokens : {9, 10, 16, 17, 18, 100}) {
    const DatasetView view = data(tokens);
    for (const SampleOrder order : {SampleOrder::shuffled, SampleOrder::sequential}) {
      const Loader loader(view, 8, order, 3);
      for (const std::int64_t first : {0, 1, 5})
        for (const std::int64_t count : {0, 1, 4, 30})
          EXPECT_EQ(loader.valid_targets(first, count), batch_of(loader, first, count).valid)
              << tokens << " " << first << " " << count;
    }
  }
}

TEST_F(LoaderTest, SequencesAreConnectedText) {
  const DatasetView view = data(100);
  const Loader loader(view, 8, SampleOrder::shuffled, 3);
  const Batch batch = batch_of(loader, 0, loader.sequences());
  for (std::size_t i = 0; i < batch.tokens.size(); ++i)
    EXPECT_EQ(batch.tokens[i], batch.tokens[i / 8 * 8] + static_cast<std::int32_t>(i % 8));
}

TEST_F(LoaderTest, OrderDependsOnSeedAndEpochAndNothingElse) {
  const DatasetView view = data(4001);
  const Loader one(view, 8, SampleOrder::shuffled, 1), same(view, 8, SampleOrder::shuffled, 1),
      two(view, 8, SampleOrder::shuffled, 2);
  const std::int64_t epoch = one.sequences();
  EXPECT_EQ(batch_of(one, 0, epoch).tokens, batch_of(same, 0, epoch).tokens);
  EXPECT_NE(batch_of(one, 0, epoch).tokens, batch_of(two, 0, epoch).tokens);
  EXPECT_NE(batch_of(one, 0, epoch).tokens, batch_of(one, epoch, epoch).tokens);
}

TEST_F(LoaderTest, ResumesAnywhereAndSplitsOverAnyRankCount) {
  const DatasetView view = data(1000);
  const Loader loader(view, 8, SampleOrder::shuffled, 5);
  const Batch whole = batch_of(loader, 0, 3 * loader.sequences());
  for (const std::int64_t part : {1, 2, 7, 25}) {
    Batch joined;
    const Loader fresh(view, 8, SampleOrder::shuffled, 5);
    for (std::int64_t first = 0; first < 3 * loader.sequences(); first += part) {
      const Batch piece = batch_of(fresh, first, std::min(part, 3 * loader.sequences() - first));
      joined.tokens.insert(joined.tokens.end(), piece.tokens.begin(), piece.tokens.end());
      joined.targets.insert(joined.targets.end(), piece.targets.begin(), piece.targets.end());
      joined.valid += piece.valid;
    }
    EXPECT_EQ(joined.tokens, whole.tokens);
    EXPECT_EQ(joined.targets, whole.targets);
    EXPECT_EQ(joined.valid, whole.valid);
  }
}

TEST_F(LoaderTest, FilesMakeNoDifference) {
  const DatasetView one = data(300);
  const Batch expected = batch_of(Loader(one, 16, SampleOrder::shuffled, 1), 0, 40);
  const DatasetView many = data(300, {1, 2, 50, 50, 299});  // an empty file among them
  EXPECT_EQ(many.tokens(), 300);
  EXPECT_EQ(batch_of(Loader(many, 16, SampleOrder::shuffled, 1), 0, 40).tokens, expected.tokens);
}

TEST_F(LoaderTest, SequentialOrderKeepsItsShapeToTheEnd) {
  const DatasetView view = data(21);
  const Loader loader(view, 8, SampleOrder::sequential);
  EXPECT_EQ(loader.sequences(), 3);
  const Batch batch = batch_of(loader, 0, 4);
  EXPECT_EQ(batch.valid, 20);
  for (std::int32_t i = 0; i < 16; ++i) EXPECT_EQ(batch.targets[static_cast<std::size_t>(i)], i + 1);
  // The last sequence ends with the data; what was a target before is not one again.
  EXPECT_EQ(std::vector<std::int32_t>(batch.tokens.begin() + 16, batch.tokens.begin() + 24),
            (std::vector<std::int32_t>{12, 13, 14, 15, 16, 17, 18, 19}));
  EXPECT_EQ(std::vector<std::int32_t>(batch.targets.begin() + 16, batch.targets.end()),
            (std::vector<std::int32_t>{-1, -1, -1, -1, 17, 18, 19, 20, -1, -1, -1, -1, -1, -1, -1, -1}));
  EXPECT_EQ(std::vector<std::int32_t>(batch.tokens.begin() + 24, batch.tokens.end()), std::vector<std::int32_t>(8, 0));
}

TEST_F(LoaderTest, ShortValidationDataIsPadded) {
  const DatasetView view = data(4);
  const Batch batch = batch_of(Loader(view, 6, SampleOrder::sequential), 0, 1);
  EXPECT_EQ(batch.valid, 3);
  EXPECT_EQ(batch.tokens, (std::vector<std::int32_t>{0, 1, 2, 0, 0, 0}));
  EXPECT_EQ(batch.targets, (std::vector<std::int32_t>{1, 2, 3, -1, -1, -1}));
}

TEST_F(LoaderTest, TooLittleDataSaysWhatWouldDo) {
  const DatasetView view = data(8);
  EXPECT_NO_THROW(Loader(view, 7, SampleOrder::shuffled));
  EXPECT_USER_ERROR(Loader(view, 8, SampleOrder::shuffled),
                    AllOf(HasSubstr("8 tokens"), HasSubstr("at least 9"), HasSubstr("a context of at most 7")));
  const DatasetView one = data(1);
  EXPECT_USER_ERROR(Loader(one, 8, SampleOrder::sequential), AllOf(HasSubstr("1 tokens"), HasSubstr("use more text")));
}

TEST_F(LoaderTest, DataIsCheckedAgainstTheVocabulary) {
  data(100);
  EXPECT_USER_ERROR(DatasetView({folder_.path() / "shard-0.bin"}, 99), HasSubstr("token 99 is 99"));
  EXPECT_USER_ERROR(DatasetView({}, 99), HasSubstr("no files"));
}

}  // namespace
}  // namespace filigree
