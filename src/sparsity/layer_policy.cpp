#include "sparsity/layer_policy.h"

#include "io/layer_pattern.h"

namespace filigree {

LinearSpec layer_spec(const Config& config, const std::string& name, std::int64_t inputs, std::int64_t outputs,
                      Mode mode, bool dense_phase) {
  const WeightsConfig& weights = config.weights;
  LinearSpec spec{.name = name,
                  .inputs = inputs,
                  .outputs = outputs,
                  .dtype = config.run.precision,
                  .mode = mode,
                  .method = weights.method,
                  .pattern = weights.pattern,
                  .mask = weights.mask,
                  .fixed_column_mask = weights.column_mask == "fixed",
                  .dx_rescale = static_cast<float>(weights.dx_rescale),
                  .scale_by_energy = weights.init_scale == "energy",
                  .seed = config.run.seed};
  for (const std::string& layers : weights.dense_layers)
    if (matches_layer(layers, name)) spec.method = "dense";
  for (const WeightsConfig::Override& change : weights.overrides) {
    if (!matches_layer(change.layers, name)) continue;
    if (!change.method.empty()) spec.method = change.method;
    if (!change.pattern.empty()) {
      const std::optional<Pattern> pattern = parse_pattern(change.pattern);
      require(pattern.has_value(), "an override's pattern was not checked");
      spec.pattern = *pattern;
    }
  }
  if (dense_phase) spec.method = "dense";
  return spec;
}

}  // namespace filigree
