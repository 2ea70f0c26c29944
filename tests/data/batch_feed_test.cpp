#include "data/batch_feed.h"

#include <vector>

#include "text/text_support.h"

namespace filigree {
namespace {

class BatchFeedTest : public ::testing::Test {
 protected:
  DatasetView data(std::int64_t tokens) const {
    const std::filesystem::path path = folder_.path() / "shard.bin";
    TokenShardWriter writer(path, 60000);
    for (std::int64_t id = 0; id < tokens; ++id)
      writer.append(std::vector<std::int32_t>{static_cast<std::int32_t>(id)});
    writer.finish();
    return DatasetView({path}, 60000);
  }
  testing::TemporaryFolder folder_;
};

TEST_F(BatchFeedTest, GivesTheLoadersBatchesInOrderFromAnySample) {
  const DatasetView view = data(203);
  const Loader loader(view, 8, SampleOrder::shuffled, 3);
  const auto device = Device::named(FILIGREE_TEST_DEVICE);
  for (const std::int64_t first : {0, 12, 75}) {
    BatchFeed feed(*device, loader, 3, first);
    std::vector<std::int32_t> tokens(24), targets(24), got(24);
    for (std::int64_t index = 0; index < 20; ++index) {
      loader.batch(first + 3 * index, 3, tokens.data(), targets.data());
      const BatchFeed::Batch batch = feed.next();
      EXPECT_EQ(batch.tokens.shape, (Shape{3, 8}));
      device->copy_to_host(got.data(), batch.tokens);
      EXPECT_EQ(got, tokens) << first << " " << index;
      device->copy_to_host(got.data(), batch.targets);
      EXPECT_EQ(got, targets) << first << " " << index;
      feed.advance();
    }
  }
}

}  // namespace
}  // namespace filigree
