#include "io/model_presets.h"

#include <string>

namespace filigree {

namespace {

struct Size {
  const char* name;
  std::int64_t layers, width, heads;
};

// Radford et al. 2019, table 2, with the head counts of the released checkpoints.
ModelConfig gpt2(const Size& size, std::int64_t context = 1024, std::int64_t vocab = 50257) {
  ModelConfig model;
  model.preset = size.name;
  model.arch = "gpt2";
  model.layers = size.layers;
  model.width = size.width;
  model.heads = size.heads;
  model.vocab = vocab;
  model.context = context;
  return model;
}

// Zhang et al. 2022 (arXiv 2205.01068), table 1. The 350m model normalises after each block and projects its embedding:
// another architecture, hence no preset.
ModelConfig opt(const Size& size) {
  ModelConfig model = gpt2(size, 2048, 50272);
  model.arch = "opt";
  return model;
}

// Llama 3 (arXiv 2407.21783, table 3) and Mistral v0.1 (arXiv 2310.06825, table 1) share all but these.
ModelConfig llama(const char* name, std::int64_t vocab, double rope_base) {
  ModelConfig model = gpt2({name, 32, 4096, 32}, 8192, vocab);
  model.arch = "llama";
  model.kv_heads = 8;
  model.ffn = 14336;
  model.rope_base = rope_base;
  model.tied = false;
  return model;
}

}  // namespace

const std::vector<ModelConfig>& model_presets() {
  // Vocabulary 0 in those for a processor: the tokenizer's.
  static const std::vector<ModelConfig> presets = {
      gpt2({"tiny", 2, 64, 4}, 64, 0),
      gpt2({"quickstart", 4, 256, 4}, 256, 0),
      gpt2({"nano-25m", 8, 512, 8}, 512, 0),
      gpt2({"gpt2-124m", 12, 768, 12}),
      gpt2({"gpt2-355m", 24, 1024, 16}),
      gpt2({"gpt2-774m", 36, 1280, 20}),
      gpt2({"gpt2-1.5b", 48, 1600, 25}),
      gpt2({"gpt2-2.0b", 24, 2560, 32}),  // the model of Radius
      opt({"opt-125m", 12, 768, 12}),
      opt({"opt-1.3b", 24, 2048, 32}),
      opt({"opt-2.7b", 32, 2560, 32}),
      opt({"opt-6.7b", 32, 4096, 32}),
      opt({"opt-13b", 40, 5120, 40}),
      opt({"opt-30b", 48, 7168, 56}),
      opt({"opt-66b", 64, 9216, 72}),
      llama("llama-3-8b", 128256, 500000.0),
      // v0.1: rotary base 1e4 and a window of 4096 tokens (v0.3: vocab 32768, base 1e6, no window). Attention here is
      // over the whole context, which is the same up to 4096 tokens.
      llama("mistral-7b", 32000, 10000.0),
  };
  return presets;
}

std::optional<ModelConfig> model_preset(std::string_view name) {
  for (const ModelConfig& preset : model_presets())
    if (preset.preset == name) return preset;
  return {};
}

void resolve_shape(ModelConfig& model) {
  if (model.kv_heads == 0) model.kv_heads = model.heads;
  if (model.ffn != 0) return;
  model.ffn = 4 * model.width;
  if (model.arch == "llama") model.ffn = ((8 * model.width + 2) / 3 + 63) / 64 * 64;
}

std::int64_t parameter_count(const ModelConfig& model) {
  const bool llama = model.arch == "llama";
  const std::int64_t bias = llama ? 0 : 1;
  const std::int64_t head_size = model.heads == 0 ? 0 : model.width / model.heads;
  const std::int64_t qkv = (model.heads + 2 * model.kv_heads) * head_size;
  const std::int64_t up = llama ? 2 * model.ffn : model.ffn;
  const std::int64_t norm = model.width * (1 + bias);
  const std::int64_t block = qkv * (model.width + bias) + model.width * (model.width + bias) +
                             up * (model.width + bias) + model.width * (model.ffn + bias) + 2 * norm;
  const std::int64_t positions = llama ? 0 : model.context * model.width;
  const std::int64_t embedding = model.vocab * model.width;
  return model.layers * block + norm + positions + embedding * (model.tied ? 1 : 2);
}

std::int64_t padded_vocab(std::int64_t entries) {
  return entries < 1024 ? entries : (entries + 63) / 64 * 64;
}

}  // namespace filigree
