#include "io/layer_pattern.h"

#include <gtest/gtest.h>

#include "io/model_layers.h"

namespace filigree {
namespace {

TEST(LayerPattern, PlainNamesFitThemselvesOnly) {
  EXPECT_TRUE(matches_layer("head", "head"));
  EXPECT_FALSE(matches_layer("head", "heads"));
  EXPECT_FALSE(matches_layer("head", "hea"));
  EXPECT_FALSE(matches_layer("", "head"));
  EXPECT_TRUE(matches_layer("", ""));
}

TEST(LayerPattern, StarFitsAnyRunOfCharacters) {
  EXPECT_TRUE(matches_layer("*", "blocks.3.attention.qkv"));
  EXPECT_TRUE(matches_layer("*", ""));
  EXPECT_TRUE(matches_layer("blocks.*.mlp.*", "blocks.11.mlp.down"));
  EXPECT_TRUE(matches_layer("*.qkv", "blocks.0.attention.qkv"));
  EXPECT_TRUE(matches_layer("blocks.1*", "blocks.12.mlp.up"));
  EXPECT_TRUE(matches_layer("**a*", "a"));
  EXPECT_FALSE(matches_layer("blocks.*.mlp.*", "blocks.11.attention.out"));
  EXPECT_FALSE(matches_layer("blocks.*.mlp.*", "head"));
  EXPECT_FALSE(matches_layer("*.mlp", "blocks.0.mlp.up"));
}

TEST(LayerPattern, RangesFitWholeNumbersBetweenDots) {
  for (const int block : {0, 1, 3})
    EXPECT_TRUE(matches_layer("blocks.0-3.*", "blocks." + std::to_string(block) + ".x"));
  for (const int block : {4, 10, 30, 33})
    EXPECT_FALSE(matches_layer("blocks.0-3.*", "blocks." + std::to_string(block) + ".x"));
  EXPECT_TRUE(matches_layer("blocks.9-11.*.up", "blocks.10.mlp.up"));
  EXPECT_TRUE(matches_layer("2-4", "3"));
  EXPECT_TRUE(matches_layer("*.2-4", "a.3"));
  EXPECT_FALSE(matches_layer("*2-4", "a.3"));  // not a whole part: the characters themselves
  EXPECT_TRUE(matches_layer("*2-4", "a.2-4"));
  EXPECT_FALSE(matches_layer("blocks.0-3.*", "blocks.x.y"));
  EXPECT_FALSE(matches_layer("blocks.3-0.*", "blocks.2.y"));
  EXPECT_FALSE(matches_layer("blocks.0-3", "blocks.99999999999999999999999"));
}

TEST(LayerPattern, ManyStarsTakeNoExponentialTime) {
  std::string pattern;
  for (int i = 0; i < 200; ++i) pattern += "*a";
  EXPECT_FALSE(matches_layer(pattern + "b", std::string(2000, 'a')));
  EXPECT_TRUE(matches_layer(pattern, std::string(2000, 'a')));
}

TEST(LayerPattern, ProblemsAreNamed) {
  EXPECT_EQ(layer_pattern_problem("blocks.0-3.*"), "");
  EXPECT_EQ(layer_pattern_problem("blocks.*.attention_x.A-B"), "");
  EXPECT_EQ(layer_pattern_problem(""), "a layer's name is empty");
  EXPECT_EQ(layer_pattern_problem("blocks[0]"), "a layer's name has no '['");
  EXPECT_EQ(layer_pattern_problem("blocks.3-0.*"), "the range 3-0 is empty");
}

TEST(Pattern, TextBecomesPattern) {
  EXPECT_EQ(parse_pattern("2:4"), (Pattern{2, 4}));
  EXPECT_EQ(parse_pattern("1:32"), (Pattern{1, 32}));
  for (const char* wrong : {"", ":", "2", "2:", ":4", "4:4", "0:4", "5:4", "2:33", "-1:4", "+2:4", " 2:4", "2:4 ",
                            "2:4:8", "2x4", "99999999999999999999:4"})
    EXPECT_FALSE(parse_pattern(wrong)) << wrong;
}

TEST(Block, TextBecomesBlock) {
  EXPECT_EQ(parse_block("16x32"), (BlockShape{16, 32}));
  EXPECT_EQ(parse_block("4x1024"), (BlockShape{4, 1024}));
  EXPECT_EQ(parse_block("auto"), kAutoBlock);
  EXPECT_EQ(to_string(kAutoBlock), "auto");
  EXPECT_EQ(to_string(BlockShape{16, 32}), "16x32");
  for (const char* wrong :
       {"", "16", "16x", "x16", "3x16", "16x1025", "16X16", "16x16x16", "-16x16", "16 x 16", "Auto"})
    EXPECT_FALSE(parse_block(wrong)) << wrong;
}

TEST(LayerWeights, DenseListThenOverridesInOrder) {
  WeightsConfig weights;
  weights.method = "slope";
  weights.overrides = {
      {"blocks.*.mlp.*", "", "1:4", ""}, {"blocks.1-2.mlp.up", "dense", "", ""}, {"head", "slope", "2:8", ""}};
  EXPECT_EQ(layer_weights(weights, "blocks.0.attention.qkv").method, "dense");
  EXPECT_EQ(layer_weights(weights, "blocks.1.attention.qkv").method, "slope");
  EXPECT_EQ(layer_weights(weights, "blocks.1.attention.qkv").pattern, (Pattern{2, 4}));
  EXPECT_EQ(layer_weights(weights, "blocks.0.mlp.up").method, "slope");
  EXPECT_EQ(layer_weights(weights, "blocks.0.mlp.up").pattern, (Pattern{1, 4}));
  EXPECT_EQ(layer_weights(weights, "blocks.2.mlp.up").method, "dense");
  EXPECT_EQ(layer_weights(weights, "head").method, "slope");
  EXPECT_EQ(layer_weights(weights, "head").pattern, (Pattern{2, 8}));
}

}  // namespace
}  // namespace filigree
