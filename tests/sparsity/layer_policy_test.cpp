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
  config.weights.overrides = {{.layers = "blocks.2-3.*", .method = "", .pattern = "2:8"},
                              {.layers = "blocks.3.mlp.*", .method = "dense", .pattern = ""},
                              {.layers = "head", .method = "slope", .pattern = ""}};
  EXPECT_EQ(spec(config, "blocks.1.mlp.up").pattern, (Pattern{2, 4}));
  EXPECT_EQ(spec(config, "blocks.2.mlp.up").pattern, (Pattern{2, 8}));
  EXPECT_EQ(spec(config, "blocks.3.mlp.up").method, "dense");
  EXPECT_EQ(spec(config, "blocks.3.attention.out").pattern, (Pattern{2, 8}));
  EXPECT_EQ(spec(config, "head").method, "slope");
}

TEST(LayerPolicy, EverythingIsDenseInTheDensePhase) {
  Config config;
  config.weights.method = "slope";
  EXPECT_EQ(spec(config, "blocks.1.mlp.up", true).method, "dense");
}

}  // namespace
}  // namespace filigree
