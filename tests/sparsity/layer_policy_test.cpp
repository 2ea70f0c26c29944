#include "sparsity/layer_policy.h"

#include <gtest/gtest.h>

namespace filigree {
namespace {

LinearSpec spec(const Config& config, const std::string& name, bool dense_phase = false) {
  return layer_spec(config, name, 64, 64, Mode::training, dense_phase);
}

TEST(LayerPolicy, FirstQkvAndHeadStayDenseByDefault) {
  Config config;
  config.weights.method = "slope";
  EXPECT_EQ(spec(config, "blocks.0.attention.qkv").method, "dense");
  EXPECT_EQ(spec(config, "head").method, "dense");
  for (const char* name :
       {"blocks.0.attention.out", "blocks.1.attention.qkv", "blocks.10.attention.qkv", "blocks.0.mlp.up"})
    EXPECT_EQ(spec(config, name).method, "slope") << name;
}

TEST(LayerPolicy, OverridesApplyInOrder) {
  Config config;
  config.weights.method = "slope";
  config.weights.overrides = {{.layers = "blocks.2-3.*", .method = "", .pattern = "2:8", .block = ""},
                              {.layers = "blocks.3.mlp.*", .method = "dense", .pattern = "", .block = ""},
                              {.layers = "head", .method = "slope", .pattern = "", .block = ""}};
  EXPECT_EQ(spec(config, "blocks.1.mlp.up").pattern, (Pattern{2, 4}));
  EXPECT_EQ(spec(config, "blocks.2.mlp.up").pattern, (Pattern{2, 8}));
  EXPECT_EQ(spec(config, "blocks.3.mlp.up").method, "dense");
  EXPECT_EQ(spec(config, "blocks.3.attention.out").pattern, (Pattern{2, 8}));
  EXPECT_EQ(spec(config, "head").method, "slope");
}

TEST(LayerPolicy, BlocksDensitiesAndMasksOfSingleLayers) {
  Config config;
  config.weights.method = "block";
  config.weights.overrides = {{.layers = "blocks.2.*", .method = "", .pattern = "", .block = "32x64", .density = 0.25},
                              {.layers = "blocks.3.*", .method = "slope", .pattern = "1:4", .block = ""}};
  EXPECT_EQ(spec(config, "blocks.1.mlp.up").block, default_block(false)) << "left to the device: the processor's";
  EXPECT_EQ(spec(config, "blocks.1.mlp.up").density, 0.5);
  EXPECT_EQ(spec(config, "blocks.1.mlp.up").mask, "balanced");
  EXPECT_EQ(spec(config, "blocks.2.mlp.up").block, (BlockShape{32, 64}));
  EXPECT_EQ(spec(config, "blocks.2.mlp.up").density, 0.25);
  EXPECT_EQ(spec(config, "blocks.3.mlp.up").mask, "random") << "each method has a mask of its own by default";
  config.weights.block = {128, 128};
  config.weights.mask = "magnitude";
  EXPECT_EQ(spec(config, "blocks.1.mlp.up").block, (BlockShape{128, 128}));
  for (const char* layer : {"blocks.1.mlp.up", "blocks.3.mlp.up"}) EXPECT_EQ(spec(config, layer).mask, "magnitude");
}

TEST(LayerPolicy, EverythingIsDenseInTheDensePhase) {
  Config config;
  config.weights.method = "slope";
  EXPECT_EQ(spec(config, "blocks.1.mlp.up", true).method, "dense");
}

}  // namespace
}  // namespace filigree
