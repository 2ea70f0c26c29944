#include "model/stored_layer.h"

#include "sparsity/adapter.h"
#include "sparsity/layer_policy.h"

namespace filigree {

bool is_stored_dense(const CheckpointSource& source, const std::string& layer) {
  return source.has(CheckpointSink::File::model, layer + ".weight");
}

void load_dense_matrix(Device& device, const CheckpointSource& source, const Config& from, const LinearShape& layer,
                       bool with_adapter, const Tensor& dense) {
  if (is_stored_dense(source, layer.name)) {
    load_tensor(device, source, CheckpointSink::File::model, layer.name + ".weight", dense);
    return;
  }
  const LinearSpec stored = layer_spec(from, layer.name, layer.inputs, layer.outputs, Mode::inference, false);
  const auto weight = make_linear_weight(device, stored);
  weight->load(device, source, false);
  weight->expand(device, dense, LinearWeight::Content::values);
  if (!with_adapter) return;
  Adapter low_rank(device, {.name = layer.name,
                            .inputs = layer.inputs,
                            .outputs = layer.outputs,
                            .rank = from.adapters.rank,
                            .scaled_init = from.adapters.init == "scaled",
                            .dtype = stored.dtype,
                            .mode = Mode::inference});
  low_rank.load(device, source, false);
  low_rank.merge_into(device, dense);
}

}  // namespace filigree
