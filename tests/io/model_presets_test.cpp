#include "io/model_presets.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "io/model_layers.h"

namespace filigree {
namespace {

ModelConfig resolved(std::string_view name) {
  ModelConfig model = model_preset(name).value();
  resolve_shape(model);
  return model;
}

// Parameters of the released checkpoints, as counted from their tensors; a tied head once. OPT's position table has two
// rows that no token uses: they are not ours.
TEST(ModelPresets, ParameterCountsAreThePublishedOnes) {
  const std::map<std::string, std::int64_t> published = {
      {"gpt2-124m", 124'439'808},   {"gpt2-355m", 354'823'168},    {"gpt2-774m", 774'030'080},
      {"gpt2-1.5b", 1'557'611'200}, {"opt-125m", 125'239'296},     {"opt-1.3b", 1'315'758'080},
      {"opt-2.7b", 2'651'596'800},  {"opt-6.7b", 6'658'473'984},   {"opt-13b", 12'853'473'280},
      {"opt-30b", 29'974'540'288},  {"llama-3-8b", 8'030'261'248}, {"mistral-7b", 7'241'732'096},
  };
  for (const auto& [name, count] : published) {
    const ModelConfig model = resolved(name);
    const std::int64_t unused = model.arch == "opt" ? 2 * model.width : 0;
    EXPECT_EQ(parameter_count(model) + unused, count) << name;
  }
  EXPECT_NEAR(static_cast<double>(parameter_count(resolved("gpt2-2.0b"))), 2.0e9, 0.03e9);
  EXPECT_NEAR(static_cast<double>(parameter_count(resolved("opt-66b"))), 66e9, 0.5e9);  // as the paper's table rounds
}

TEST(ModelPresets, ShapesAreThePublishedOnes) {
  EXPECT_EQ(resolved("gpt2-1.5b"),
            (ModelConfig{"gpt2-1.5b", "gpt2", 48, 1600, 25, 25, 6400, 50257, 1024, 1e-5, 1e4, true, ""}));
  EXPECT_EQ(resolved("gpt2-2.0b"),
            (ModelConfig{"gpt2-2.0b", "gpt2", 24, 2560, 32, 32, 10240, 50257, 1024, 1e-5, 1e4, true, ""}));
  EXPECT_EQ(resolved("opt-13b"),
            (ModelConfig{"opt-13b", "opt", 40, 5120, 40, 40, 20480, 50272, 2048, 1e-5, 1e4, true, ""}));
  EXPECT_EQ(resolved("llama-3-8b"),
            (ModelConfig{"llama-3-8b", "llama", 32, 4096, 32, 8, 14336, 128256, 8192, 1e-5, 5e5, false, ""}));
  EXPECT_EQ(resolved("mistral-7b"),
            (ModelConfig{"mistral-7b", "llama", 32, 4096, 32, 8, 14336, 32000, 8192, 1e-5, 1e4, false, ""}));
  EXPECT_EQ(resolved("quickstart"),
            (ModelConfig{"quickstart", "gpt2", 4, 256, 4, 4, 1024, 0, 256, 1e-5, 1e4, true, ""}));
  EXPECT_EQ(resolved("nano-25m"), (ModelConfig{"nano-25m", "gpt2", 8, 512, 8, 8, 2048, 0, 512, 1e-5, 1e4, true, ""}));
  EXPECT_NEAR(static_cast<double>(parameter_count(resolved("nano-25m"))), 25e6, 1e6);
  EXPECT_FALSE(model_preset("opt-350m"));
}

TEST(ModelPresets, VocabulariesAreRoundedUpWhereItMatters) {
  EXPECT_EQ(padded_vocab(257), 257);
  EXPECT_EQ(padded_vocab(2048), 2048);
  EXPECT_EQ(padded_vocab(50257), 50304);
}

TEST(ModelPresets, NamesAreUniqueAndHeadsDivide) {
  for (const ModelConfig& preset : model_presets()) {
    EXPECT_EQ(model_preset(preset.preset), preset) << "a name stands twice: " << preset.preset;
    EXPECT_EQ(preset.width % preset.heads, 0) << preset.preset;
  }
}

TEST(ModelPresets, LlamaHiddenWidthIsRoundedUp) {
  const auto ffn = [](std::int64_t width) {
    ModelConfig model;
    model.arch = "llama";
    model.width = width;
    resolve_shape(model);
    return model.ffn;
  };
  EXPECT_EQ(ffn(4096), 10944);  // 10922.67, LLaMA's 11008 is a multiple of 256
  EXPECT_EQ(ffn(24), 64);
  EXPECT_EQ(ffn(25), 128);
}

// The layers hold all of a model but embeddings, biases and norms.
TEST(ModelLayers, ShapesAddUpToTheParameters) {
  for (const char* name : {"gpt2-124m", "opt-1.3b", "llama-3-8b"}) {
    const ModelConfig model = resolved(name);
    const auto layers = linear_layers(model);
    EXPECT_EQ(layers.size(), static_cast<std::size_t>(4 * model.layers + 1));
    std::int64_t weights = 0;
    std::int64_t outputs = 0;
    for (const LinearShape& layer : layers) {
      weights += layer.outputs * layer.inputs;
      outputs += layer.outputs;
    }
    const std::int64_t bias = model.arch == "llama" ? 0 : outputs - model.vocab;
    const std::int64_t norms = (2 * model.layers + 1) * model.width * (model.arch == "llama" ? 1 : 2);
    const std::int64_t positions = model.arch == "llama" ? 0 : model.context * model.width;
    const std::int64_t embedding = model.tied ? 0 : model.vocab * model.width;
    EXPECT_EQ(weights + bias + norms + positions + embedding, parameter_count(model)) << name;
  }
}

TEST(ModelLayers, NamesAndShapes) {
  ModelConfig model;
  model.arch = "llama";
  model.layers = 2;
  model.width = 64;
  model.heads = 4;
  model.kv_heads = 2;
  model.ffn = 192;
  model.vocab = 97;
  const auto layers = linear_layers(model);
  std::string text;
  for (const LinearShape& layer : layers)
    text += layer.name + " " + std::to_string(layer.outputs) + "x" + std::to_string(layer.inputs) + "\n";
  EXPECT_EQ(
      text,
      "blocks.0.attention.qkv 128x64\nblocks.0.attention.out 64x64\nblocks.0.mlp.up 384x64\nblocks.0.mlp.down 64x192\n"
      "blocks.1.attention.qkv 128x64\nblocks.1.attention.out 64x64\nblocks.1.mlp.up 384x64\nblocks.1.mlp.down 64x192\n"
      "head 97x64\n");
}

}  // namespace
}  // namespace filigree
