#include "eval/perplexity.h"

#include <cmath>
#include <vector>

#include "io/shards/token_shards.h"
#include "kernels/elementwise/elementwise.h"
#include "model/tiny_models.h"

namespace filigree {
namespace {

struct Fixture {
  testing::TemporaryFolder folder;
  std::unique_ptr<Device> device = Device::cpu();
  Config config = testing::tiny_config("gpt2");
  Transformer model{*device, config, Mode::inference, false};

  DatasetView data(std::int64_t count) {
    std::vector<std::int32_t> ids;
    const Random random(5, RandomPurpose::test);
    for (std::int64_t i = 0; i < count; ++i)
      ids.push_back(static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(i), 61)));
    TokenShardWriter writer(folder.path() / "val.bin", 61);
    writer.append(ids);
    writer.finish();
    return DatasetView({folder.path() / "val.bin"}, 61);
  }
};

TEST(Perplexity, OfAModelThatKnowsNothingIsItsVocabulary) {
  Fixture fixture;  // all weights are zero: every token is as likely as any other
  const DatasetView data = fixture.data(200);
  Activations activations(*fixture.device, fixture.config.model, DType::f32, 2, 16, Recompute::inference);
  const Perplexity result =
      perplexity(*fixture.device, fixture.model, activations, data, {.batch = 2, .bytes_per_token = 2.0});
  EXPECT_EQ(result.targets, 199);
  EXPECT_NEAR(result.perplexity, 61.0, 1e-3);
  EXPECT_NEAR(result.bits_per_byte, std::log2(61.0) / 2.0, 1e-5);
}

TEST(Perplexity, CountsEveryTokenOnceWhateverTheBatch) {
  Fixture fixture;
  fixture.model.initialize(*fixture.device);
  for (Parameter* parameter : fixture.model.parameters())  // far from uniform, so that a lost token shows
    if (parameter->name() == "embedding.tokens") scale(*fixture.device, parameter->values(), 50.0f);
  const DatasetView data = fixture.data(131);
  std::vector<double> losses;
  for (const std::int64_t batch : {1, 2, 5}) {
    Activations activations(*fixture.device, fixture.config.model, DType::f32, batch, 16, Recompute::inference);
    const Perplexity result = perplexity(*fixture.device, fixture.model, activations, data, {.batch = batch});
    EXPECT_EQ(result.targets, 130);
    EXPECT_TRUE(std::isnan(result.bits_per_byte));
    losses.push_back(result.loss);
  }
  EXPECT_NEAR(losses[1], losses[0], 1e-5);
  EXPECT_NEAR(losses[2], losses[0], 1e-5);
}

TEST(Perplexity, StopsAboutWhereItIsTold) {
  Fixture fixture;
  const DatasetView data = fixture.data(500);
  Activations activations(*fixture.device, fixture.config.model, DType::f32, 2, 16, Recompute::inference);
  const Perplexity result =
      perplexity(*fixture.device, fixture.model, activations, data, {.batch = 2, .max_tokens = 100});
  EXPECT_GE(result.targets, 100);
  EXPECT_LE(result.targets, 132);
}

}  // namespace
}  // namespace filigree
