#include "io/model_layers.h"

#include "core/error.h"
#include "io/config_keys.h"
#include "io/layer_pattern.h"

namespace filigree {

std::vector<LinearShape> linear_layers(const ModelConfig& model) {
  require(model.heads > 0, "linear_layers: the model has no heads");
  const std::int64_t head_size = model.width / model.heads;
  std::vector<LinearShape> layers;
  for (std::int64_t block = 0; block < model.layers; ++block) {
    const std::string prefix = "blocks." + std::to_string(block) + ".";
    layers.push_back({prefix + "attention.qkv", (model.heads + 2 * model.kv_heads) * head_size, model.width});
    layers.push_back({prefix + "attention.out", model.width, model.width});
    layers.push_back({prefix + "mlp.up", model.arch == "llama" ? 2 * model.ffn : model.ffn, model.width});
    layers.push_back({prefix + "mlp.down", model.width, model.ffn});
  }
  layers.push_back({"head", model.vocab, model.width});
  return layers;
}

LayerWeights layer_weights(const WeightsConfig& weights, std::string_view layer) {
  LayerWeights result{weights.method, weights.pattern, weights.block, weights.density, weights.mask};
  for (const std::string& pattern : weights.dense_layers)
    if (matches_layer(pattern, layer)) result.method = "dense";
  for (const WeightsConfig::Override& override_ : weights.overrides) {
    if (!matches_layer(override_.layers, layer)) continue;
    if (!override_.method.empty()) result.method = override_.method;
    if (const auto pattern = parse_pattern(override_.pattern)) result.pattern = *pattern;
    if (const auto block = parse_block(override_.block)) result.block = *block;
    if (override_.density > 0.0) result.density = override_.density;
  }
  if (!result.block.chosen()) result.block = default_block(false);
  if (result.mask == "auto") result.mask = default_mask(result.method);
  return result;
}

std::string default_mask(std::string_view method) {
  return method == "block" ? "balanced" : "random";
}

std::string describe_weights(const WeightsConfig& weights) {
  if (weights.method == "slope") return "slope " + to_string(weights.pattern);
  if (weights.method != "block") return weights.method;
  return "block " + to_string(weights.block) + ", density " + toml_value(weights.density);
}

}  // namespace filigree
