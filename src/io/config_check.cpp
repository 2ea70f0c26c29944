#include <algorithm>
#include <limits>
#include <numeric>

#include "core/error.h"
#include "io/config_keys.h"
#include "io/config_toml.h"
#include "io/layer_pattern.h"
#include "io/model_layers.h"

namespace filigree {

namespace {

using Where = std::function<std::string(std::string_view)>;

class Checker {
 public:
  Checker(const Config& config, const Where& where) : config_(config), where_(where) {}

  void check() {
    check_model();
    check_batch();
    check_fractions();
    check_exchange();
    check_sharding();
    // Layer shapes mean nothing while the model's shape is wrong.
    if (problems_.empty()) check_layers();
    if (!problems_.empty()) throw UserError(problems_);
  }

 private:
  void report(std::string_view key, const std::string& text) {
    const std::string place = where_ ? where_(key) : "";
    if (!problems_.empty()) problems_ += "\n";
    problems_ += (place.empty() ? "" : place + ": ") + std::string(key) + ": " + text;
  }
  // "found <value>, <text>"
  void report(std::string_view key, std::int64_t found, const std::string& text) {
    report(key, "found " + std::to_string(found) + ", " + text);
  }

  static std::int64_t round_up(std::int64_t value, std::int64_t unit) {
    return std::max<std::int64_t>(1, (value + unit - 1) / unit) * unit;
  }
  // "multiple of 32, e.g. 64 or 96"
  static std::string multiples(std::int64_t value, std::int64_t unit) {
    const std::int64_t above = round_up(value, unit);
    std::string text = "a multiple of " + std::to_string(unit) + ", e.g. ";
    if (above > unit) text += std::to_string(above - unit) + " or ";
    return text + std::to_string(above);
  }

  void check_model() {
    const ModelConfig& model = config_.model;
    for (const auto& [key, value] : {std::pair<std::string_view, std::int64_t>{"model.layers", model.layers},
                                     {"model.width", model.width},
                                     {"model.heads", model.heads},
                                     {"model.context", model.context},
                                     {"model.kv_heads", model.kv_heads},
                                     {"model.ffn", model.ffn}})
      if (value < 1) report(key, value, "expected at least 1");
    if (!problems_.empty()) return;
    if (model.width % model.heads != 0)
      report(
          "model.width", model.width,
          "expected " + multiples(model.width, model.heads) + " (model.heads = " + std::to_string(model.heads) + ")");
    else if (model.arch == "llama" && model.width / model.heads % 2 != 0)
      report("model.width", model.width,
             "rotary positions turn pairs: expected " + multiples(model.width, 2 * model.heads));
    if (model.heads % model.kv_heads != 0)
      report("model.kv_heads", model.kv_heads, "expected a divisor of model.heads = " + std::to_string(model.heads));
  }

  void check_batch() {
    const TrainConfig& train = config_.train;
    const std::int64_t context = std::max<std::int64_t>(config_.model.context, 1);
    const std::int64_t unit = std::max<std::int64_t>(train.micro_batch, 1) * context;
    if (train.batch_tokens < 1 || train.batch_tokens % unit != 0) {
      const std::string sequences = train.micro_batch > 0 ? "train.micro_batch x model.context = " : "model.context = ";
      report("train.batch_tokens", train.batch_tokens,
             "expected " + multiples(train.batch_tokens, unit) + " (" + sequences + std::to_string(unit) + ")");
    }
    if (train.warmup > train.steps)
      report("train.warmup", train.warmup, "expected at most train.steps = " + std::to_string(train.steps));
  }

  void check_fractions() {
    const auto check = [&](std::string_view key, double value) {
      if (!(value >= 0.0 && value <= 1.0))
        report(key, "found " + toml_value(value) + ", expected a number from 0 to 1");
    };
    check("weights.start", config_.weights.start);
    check("adapters.start", config_.adapters.start);
    check("train.min_lr", config_.train.min_lr);
  }

  // A key's text that does not go with another key's.
  void report_text(std::string_view key, const std::string& found, const std::string& text) {
    report(key, "found " + toml_value(found) + ", " + text);
  }

  void check_exchange() {
    const GradientsConfig& gradients = config_.gradients;
    if (gradients.exchange == "dense") return;
    if (gradients.exchange == "powersgd" && gradients.wire_dtype != DType::f32)
      report_text("gradients.wire_dtype", "bf16", "but powersgd sends its factors in fp32; expected \"fp32\"");
    if (gradients.exchange == "radius") check_radius();
  }

  // Radius looks at the update of whole tensors when it chooses what to send.
  void check_sharding() {
    if (config_.distributed.zero == 1 && config_.gradients.exchange == "radius")
      report("distributed.zero", 1,
             "but gradients.exchange = \"radius\" chooses what it sends by the moments of whole tensors, which then no "
             "rank has; expected 0, or another exchange");
  }

  void check_radius() {
    const GradientsConfig& gradients = config_.gradients;
    if (gradients.frozen &&
        (gradients.flush == "spread" || (gradients.flush == "auto" && gradients.mode == "improved")))
      report("gradients.frozen",
             "found true, but entries that do not move cannot take up a flush that is spread over "
             "steps; expected false, or gradients.flush = \"split\"");
    if (gradients.mode != "faithful") return;
    // Faithful is one fixed algorithm; its switches belong to the other mode.
    const std::string advice = " in faithful mode, or gradients.mode = \"improved\"";
    if (gradients.flush != "auto" && gradients.flush != "sum")
      report_text("gradients.flush", gradients.flush, "expected \"sum\"" + advice);
    if (gradients.clip == "fresh") report_text("gradients.clip", gradients.clip, "expected \"joint\"" + advice);
    if (gradients.score != "direction")
      report_text("gradients.score", gradients.score, "expected \"direction\"" + advice);
    if (gradients.stagger) report("gradients.stagger", "found true, expected false" + advice);
    if (gradients.frozen) report("gradients.frozen", "found true, expected false" + advice);
    if (gradients.wire_dtype != DType::f32) report_text("gradients.wire_dtype", "bf16", "expected \"fp32\"" + advice);
  }

  void check_layers() {
    const WeightsConfig& weights = config_.weights;
    const std::vector<LinearShape> layers = linear_layers(config_.model);
    for (const std::string& pattern : weights.dense_layers) check_matches("weights.dense_layers", pattern, layers);
    for (const auto& entry : weights.overrides) check_matches("weights.override", entry.layers, layers);
    // Which layers are sparse is not known while a name is wrong.
    if (!problems_.empty()) return;
    if (config_.adapters.rank > config_.model.width)
      report("adapters.rank", config_.adapters.rank,
             "expected at most model.width = " + std::to_string(config_.model.width));
    const auto is_sparse = [&](const LinearShape& layer) {
      return layer_weights(weights, layer.name).method != "dense";
    };
    if (config_.adapters.rank > 0 && std::none_of(layers.begin(), layers.end(), is_sparse))
      report("adapters.rank", config_.adapters.rank,
             "expected 0: adapters join sparse layers, and this model has none");
    for (const LinearShape& layer : layers) {
      const LayerWeights choice = layer_weights(weights, layer.name);
      if (choice.method == "dense") continue;
      if (config_.gradients.exchange == "powersgd")
        return report_text("gradients.exchange", "powersgd",
                           "which sends products of thin matrices, but the layer " + layer.name + " is " +
                               choice.method +
                               ": its gradient is stored compressed and is no matrix; expected \"radius\", "
                               "\"randomk\", \"topk\" or \"dense\", or weights.method = \"dense\"");
      // Blocks are alike: one message is enough.
      if (!check_head(layer) || !check_mask(layer, choice)) return;
      if (!(choice.method == "block" ? check_block(layer, choice) : check_pattern(layer, choice))) return;
    }
  }

  void check_matches(std::string_view key, const std::string& pattern, const std::vector<LinearShape>& layers) {
    const auto fits = [&](const LinearShape& layer) { return matches_layer(pattern, layer.name); };
    if (std::any_of(layers.begin(), layers.end(), fits)) return;
    // Blocks are alike: the first one and the head have all there is to name.
    std::string_view closest;
    std::size_t least = std::numeric_limits<std::size_t>::max();
    for (const LinearShape& layer : layers) {
      if (layer.name != "head" && !layer.name.starts_with("blocks.0.")) continue;
      const std::size_t distance = edit_distance(pattern, layer.name);
      if (distance < least) closest = layer.name, least = distance;
    }
    report(key, "found " + toml_value(pattern) + ", which names no layer of this model; the closest is " +
                    toml_value(std::string(closest)) + " of blocks 0 to " + std::to_string(config_.model.layers - 1));
  }

  bool check_head(const LinearShape& layer) {
    if (layer.name != "head" || !config_.model.tied) return true;
    const bool overridden = std::any_of(config_.weights.overrides.begin(), config_.weights.overrides.end(),
                                        [](const auto& entry) { return matches_layer(entry.layers, "head"); });
    report(overridden ? "weights.override" : "weights.dense_layers",
           std::string("the layer head would be sparse, but model.tied shares it with the embedding; expected ") +
               (overridden ? "a dense head" : "\"head\" in this list") + ", or model.tied = false");
    return false;
  }

  bool check_mask(const LinearShape& layer, const LayerWeights& choice) {
    if (choice.method == "block" || choice.mask == "random" || choice.mask == "magnitude") return true;
    report("weights.mask", "found " + toml_value(choice.mask) + ", which the " + choice.method + " layer " +
                               layer.name + " cannot have; expected \"auto\", \"random\" or \"magnitude\"");
    return false;
  }

  // A block may hang over a layer's edge, but not be larger than the layer.
  bool check_block(const LinearShape& layer, const LayerWeights& choice) {
    if (layer.outputs >= choice.block.rows && layer.inputs >= choice.block.columns) return true;
    const std::int64_t rows = std::min<std::int64_t>(layer.outputs, choice.block.rows);
    const std::int64_t columns = std::min<std::int64_t>(layer.inputs, choice.block.columns);
    const BlockShape common = config_.weights.block.chosen() ? config_.weights.block : default_block(false);
    report(common == choice.block ? "weights.block" : "weights.override",
           "found \"" + to_string(choice.block) + "\", but the layer " + layer.name + " is only " +
               std::to_string(layer.outputs) + " x " + std::to_string(layer.inputs) + "; expected at most \"" +
               std::to_string(rows) + "x" + std::to_string(columns) + "\", or the layer in weights.dense_layers");
    return false;
  }

  // Both sides are cut into groups: inputs forward, outputs in the second pruning.
  bool check_pattern(const LinearShape& layer, const LayerWeights& choice) {
    const std::int64_t of = choice.pattern.of;
    if (layer.inputs % of == 0 && layer.outputs % of == 0) return true;
    const ModelConfig& model = config_.model;
    const bool mlp = layer.name.find(".mlp.") != std::string::npos;
    // A width has to suit the heads as well.
    const std::int64_t width_unit = std::lcm(of, (model.arch == "llama" ? 2 : 1) * model.heads);
    std::string_view key = "model.width";
    std::int64_t value = model.width;
    std::string fitting = multiples(value, width_unit);
    if (layer.name == "head" && layer.inputs % of == 0) {
      key = "model.vocab", value = model.vocab, fitting = multiples(value, of);
    } else if (mlp && model.width % of == 0) {
      key = "model.ffn", value = model.ffn, fitting = multiples(value, of);
    } else if (model.width % of == 0) {
      key = "model.kv_heads", value = model.kv_heads;
      fitting = "rows of queries, keys and values, (heads + 2 x kv_heads) x width / heads, that are a multiple of " +
                std::to_string(of);
    }
    const std::string shape = " (" + std::to_string(layer.outputs) + " x " + std::to_string(layer.inputs) + ")";
    // A pattern that somebody chose is named first; with the usual one it is the shape that does not fit.
    if (choice.pattern == Pattern{}) {
      report(key, value,
             "the layer " + layer.name + shape + " cannot hold " + to_string(choice.pattern) + "; expected " + fitting +
                 ", or the layer in weights.dense_layers");
    } else {
      report(choice.pattern == config_.weights.pattern ? "weights.pattern" : "weights.override",
             "found " + toml_value(to_string(choice.pattern)) + ", which the layer " + layer.name + shape +
                 " cannot hold; expected another pattern, " + std::string(key) + " (now " + std::to_string(value) +
                 ") as " + fitting + ", or the layer in weights.dense_layers");
    }
    return false;
  }

  const Config& config_;
  const Where& where_;
  std::string problems_;
};

}  // namespace

void check_config(const Config& config, const Where& where) {
  Checker(config, where).check();
}

}  // namespace filigree
