#include "sparsity/layer_policy.h"

#include "io/model_layers.h"

namespace filigree {

LinearSpec layer_spec(const Config& config, const std::string& name, std::int64_t inputs, std::int64_t outputs,
                      Mode mode, bool dense_phase) {
  const WeightsConfig& weights = config.weights;
  const LayerWeights choice = layer_weights(weights, name);
  LinearSpec spec{.name = name,
                  .inputs = inputs,
                  .outputs = outputs,
                  .dtype = config.run.precision,
                  .mode = mode,
                  .method = choice.method,
                  .pattern = choice.pattern,
                  .block = choice.block,
                  .density = choice.density,
                  .mask = choice.mask,
                  .fixed_column_mask = weights.column_mask == "fixed",
                  .dx_rescale = static_cast<float>(weights.dx_rescale),
                  .scale_by_energy = weights.init_scale == "energy",
                  .seed = config.run.seed};
  if (dense_phase) spec.method = "dense";
  return spec;
}

}  // namespace filigree
