// Checks that span several keys. Each message is compared whole.
#include <gtest/gtest.h>

#include "config_support.h"

namespace filigree {
namespace {

using testing::kSmall;
using testing::refusal;
using testing::with;

std::string refused(const std::vector<std::string>& overrides) {
  return refusal(kSmall, overrides);
}

TEST(ConfigCheck, BatchIsWholeMicroBatches) {
  EXPECT_EQ(refused({"train.batch_tokens=100"}),
            "--set: train.batch_tokens: found 100, expected a multiple of 64, e.g. 64 or 128 (model.context = 64)");
  EXPECT_EQ(refused({"train.micro_batch=4"}),
            "run.toml:3: train.batch_tokens: found 128, expected a multiple of 256, e.g. 256 (train.micro_batch x "
            "model.context = 256)");
  EXPECT_EQ(refused({"train.micro_batch=2"}), "(accepted)");
  EXPECT_EQ(refused({"train.warmup=11"}), "--set: train.warmup: found 11, expected at most train.steps = 10");
  EXPECT_EQ(refused({"train.warmup=10"}), "(accepted)");
}

TEST(ConfigCheck, HeadsDivide) {
  EXPECT_EQ(refused({"model.width=66"}),
            "--set: model.width: found 66, expected a multiple of 4, e.g. 64 or 68 (model.heads = 4)");
  EXPECT_EQ(refused({"model.kv_heads=3"}), "--set: model.kv_heads: found 3, expected a divisor of model.heads = 4");
  EXPECT_EQ(refused({"model.kv_heads=2"}), "(accepted)");
  EXPECT_EQ(refused({"model.arch=llama", "model.width=68"}),
            "--set: model.width: found 68, rotary positions turn pairs: expected a multiple of 8, e.g. 64 or 72");
  EXPECT_EQ(refused({"model.width=68"}), "(accepted)");
  EXPECT_EQ(refused({"model.width=3", "model.heads=5"}),
            "--set: model.width: found 3, expected a multiple of 5, e.g. 5 (model.heads = 5)");
}

TEST(ConfigCheck, SharedStateNeedsAnExchangeThatUpdatesParts) {
  for (const char* exchange : {"dense", "topk", "randomk"})
    EXPECT_EQ(refused({"distributed.zero=1", std::string("gradients.exchange=") + exchange}), "(accepted)");
  EXPECT_EQ(
      refused({"distributed.zero=1", "gradients.exchange=radius"}),
      "--set: distributed.zero: found 1, but gradients.exchange = \"radius\" chooses what it sends by the moments "
      "of whole tensors, which then no rank has; expected 0, or another exchange");
  EXPECT_EQ(refused({"distributed.zero=2"}), "--set: distributed.zero: found 2, expected an integer from 0 to 1");
}

TEST(ConfigCheck, ExchangesGoWithTheirSwitches) {
  const auto radius = [](std::vector<std::string> keys) {
    keys.push_back("gradients.exchange=radius");
    return refused(keys);
  };
  EXPECT_EQ(radius({}), "(accepted)");
  EXPECT_EQ(radius({"gradients.mode=faithful", "gradients.range=50", "gradients.density=0.01"}), "(accepted)");
  EXPECT_EQ(radius({"gradients.flush=split", "gradients.frozen=true", "gradients.stagger=true"}), "(accepted)");
  EXPECT_EQ(
      radius({"gradients.mode=faithful", "gradients.flush=split"}),
      "--set: gradients.flush: found \"split\", expected \"sum\" in faithful mode, or gradients.mode = \"improved\"");
  EXPECT_EQ(radius({"gradients.mode=faithful", "gradients.wire_dtype=bf16"}),
            "--set: gradients.wire_dtype: found \"bf16\", expected \"fp32\" in faithful mode, or gradients.mode = "
            "\"improved\"");
  for (const char* key : {"clip=fresh", "score=momentum", "stagger=true", "frozen=true"})
    EXPECT_NE(radius({"gradients.mode=faithful", std::string("gradients.") + key}).find("in faithful mode"),
              std::string::npos)
        << key;
  EXPECT_EQ(radius({"gradients.frozen=true"}),
            "--set: gradients.frozen: found true, but entries that do not move cannot take up a flush that is spread "
            "over steps; expected false, or gradients.flush = \"split\"");
  EXPECT_EQ(refused({"gradients.exchange=powersgd", "weights.method=dense"}), "(accepted)");
  EXPECT_EQ(refused({"gradients.exchange=powersgd", "weights.method=slope"}),
            "--set: gradients.exchange: found \"powersgd\", which sends products of thin matrices, but the layer "
            "blocks.0.attention.out is slope: its gradient is stored compressed and is no matrix; expected \"radius\", "
            "\"randomk\", \"topk\" or \"dense\", or weights.method = \"dense\"");
  EXPECT_EQ(refused({"gradients.exchange=powersgd", "weights.method=dense", "gradients.wire_dtype=bf16"}),
            "--set: gradients.wire_dtype: found \"bf16\", but powersgd sends its factors in fp32; expected \"fp32\"");
  EXPECT_EQ(refused({"gradients.density=0"}),
            "--set: gradients.density: found 0.0, expected a number above 0 and at most 1");
}

TEST(ConfigCheck, SparseLayersFitThePattern) {
  EXPECT_EQ(
      refused({"weights.method=slope", "model.width=60", "weights.pattern=2:8"}),
      "--set: weights.pattern: found \"2:8\", which the layer blocks.0.attention.out (60 x 60) cannot hold; expected "
      "another pattern, model.width (now 60) as a multiple of 8, e.g. 56 or 64, or the layer in weights.dense_layers");
  EXPECT_EQ(
      refused({"weights.method=slope", "weights.pattern=2:5"}),
      "--set: weights.pattern: found \"2:5\", which the layer blocks.0.attention.out (64 x 64) cannot hold; expected "
      "another pattern, model.width (now 64) as a multiple of 20, e.g. 60 or 80, or the layer in weights.dense_layers")
      << "20 suits 4 heads too";
  EXPECT_EQ(
      refused({"weights.method=slope", "model.ffn=250"}),
      "--set: model.ffn: found 250, the layer blocks.0.mlp.up (250 x 64) cannot hold 2:4; expected a multiple of 4, "
      "e.g. 248 or 252, or the layer in weights.dense_layers");
  EXPECT_EQ(refused({"weights.method=slope", "model.ffn=250", "weights.dense_layers=['*.mlp.*', 'head']"}),
            "(accepted)");
  EXPECT_EQ(refused({"weights.method=dense", "model.ffn=250"}), "(accepted)");
  EXPECT_EQ(
      refused({"weights.method=slope", "model.heads=32", "model.kv_heads=1", "weights.pattern=1:32"}),
      "--set: weights.pattern: found \"1:32\", which the layer blocks.1.attention.qkv (68 x 64) cannot hold; expected "
      "another pattern, model.kv_heads (now 1) as rows of queries, keys and values, (heads + 2 x kv_heads) x width / "
      "heads, that are a multiple of 32, or the layer in weights.dense_layers");
}

TEST(ConfigCheck, OneSparseLayerOfADenseModel) {
  EXPECT_EQ(
      refused({"weights.override=[{layers='blocks.1.mlp.down', method='slope', pattern='1:3'}]"}),
      "--set: weights.override: found \"1:3\", which the layer blocks.1.mlp.down (64 x 256) cannot hold; expected "
      "another pattern, model.width (now 64) as a multiple of 12, e.g. 60 or 72, or the layer in "
      "weights.dense_layers");
}

TEST(ConfigCheck, BlocksAreNoLargerThanTheirLayers) {
  EXPECT_EQ(refused({"weights.method=block"}), "(accepted)");
  EXPECT_EQ(refused({"weights.method=block", "weights.block=64x64", "model.ffn=250"}), "(accepted)")
      << "blocks may hang over";
  EXPECT_EQ(refused({"weights.method=block", "weights.block=128x32"}),
            "--set: weights.block: found \"128x32\", but the layer blocks.0.attention.out is only 64 x 64; expected at "
            "most \"64x32\", or the layer in weights.dense_layers");
  EXPECT_EQ(refused({"weights.override=[{layers='blocks.1.mlp.down', method='block', block='32x512'}]"}),
            "--set: weights.override: found \"32x512\", but the layer blocks.1.mlp.down is only 64 x 256; expected at "
            "most \"32x256\", or the layer in weights.dense_layers");
}

TEST(ConfigCheck, MasksBelongToMethods) {
  for (const char* mask : {"auto", "random", "magnitude", "balanced", "diagonal-band"})
    EXPECT_EQ(refused({"weights.method=block", "weights.mask=" + std::string(mask)}), "(accepted)");
  for (const char* mask : {"auto", "random", "magnitude"})
    EXPECT_EQ(refused({"weights.method=slope", "weights.mask=" + std::string(mask)}), "(accepted)");
  EXPECT_EQ(
      refused({"weights.method=slope", "weights.mask=balanced"}),
      "--set: weights.mask: found \"balanced\", which the slope layer blocks.0.attention.out cannot have; expected "
      "\"auto\", \"random\" or \"magnitude\"");
  EXPECT_EQ(refused({"weights.mask=balanced"}), "(accepted)") << "no layer is sparse";
}

TEST(ConfigCheck, ATiedHeadStaysDense) {
  const std::string expected =
      "--set: weights.override: the layer head would be sparse, but model.tied shares it with the embedding; expected "
      "a dense head, or model.tied = false";
  const std::string sparse_head = "weights.override=[{layers='head', method='slope'}]";
  EXPECT_EQ(refused({sparse_head}), expected);
  EXPECT_EQ(refused({sparse_head, "model.tied=false"}), "(accepted)");
  EXPECT_EQ(refused({"weights.method=slope", "weights.dense_layers=[]"}),
            "--set: weights.dense_layers: the layer head would be sparse, but model.tied shares it with the embedding; "
            "expected \"head\" in this list, or model.tied = false");
  EXPECT_EQ(
      refused({sparse_head, "model.tied=false", "model.vocab=50257"}),
      "--set: model.vocab: found 50257, the layer head (50257 x 64) cannot hold 2:4; expected a multiple of 4, e.g. "
      "50256 or 50260, or the layer in weights.dense_layers");
}

TEST(ConfigCheck, NamesOfLayersExist) {
  EXPECT_EQ(
      refused({"weights.dense_layers=['blocks.0.mlp.dwon']"}),
      "--set: weights.dense_layers: found \"blocks.0.mlp.dwon\", which names no layer of this model; the closest is "
      "\"blocks.0.mlp.down\" of blocks 0 to 1");
  EXPECT_EQ(
      refused({"weights.method=slope", "weights.dense_layers=['blocks.9.mlp.up']"}),
      "--set: weights.dense_layers: found \"blocks.9.mlp.up\", which names no layer of this model; the closest is "
      "\"blocks.0.mlp.up\" of blocks 0 to 1")
      << "one message: the head is not blamed as well";
  EXPECT_EQ(refused({"weights.override=[{layers='blocks.2-5.mlp.up', method='dense'}]"}),
            "--set: weights.override: found \"blocks.2-5.mlp.up\", which names no layer of this model; the closest is "
            "\"blocks.0.mlp.up\" of blocks 0 to 1");
}

TEST(ConfigCheck, AdaptersAreNoWiderThanTheModel) {
  EXPECT_EQ(refused({"weights.method=slope", "adapters.rank=65"}),
            "--set: adapters.rank: found 65, expected at most model.width = 64");
  EXPECT_EQ(refused({"weights.method=slope", "adapters.rank=64"}), "(accepted)");
  EXPECT_EQ(refused({"adapters.rank=4"}),
            "--set: adapters.rank: found 4, expected 0: adapters join sparse layers, and this model has none");
}

TEST(ConfigCheck, SeveralProblemsComeTogether) {
  EXPECT_EQ(refused({"model.width=66", "train.warmup=11"}),
            "--set: model.width: found 66, expected a multiple of 4, e.g. 64 or 68 (model.heads = 4)\n"
            "--set: train.warmup: found 11, expected at most train.steps = 10");
}

TEST(ConfigCheck, AConfigMadeInCodeIsCheckedWithoutPlaces) {
  const auto message = [](const Config& config) -> std::string {
    try {
      check_config(config);
    } catch (const UserError& error) {
      return error.what();
    }
    return "(accepted)";
  };
  Config config = with({});
  EXPECT_EQ(message(config), "(accepted)");
  config.weights.start = 1.5;
  EXPECT_EQ(message(config), "weights.start: found 1.5, expected a number from 0 to 1");
  config = with({});
  config.model.layers = 0;
  EXPECT_EQ(message(config), "model.layers: found 0, expected at least 1");
}

}  // namespace
}  // namespace filigree
