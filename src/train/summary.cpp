#include "train/summary.h"

#include "optim/schedule.h"

namespace filigree {
namespace {

Config dense_config(const Config& config) {
  Config dense = config;
  dense.weights.method = "dense";
  dense.weights.overrides.clear();
  dense.adapters.rank = 0;
  return dense;
}

void fill_layers(ModelSummary& summary, const Device& device, const Transformer& model) {
  for (const Linear* linear : model.linears()) {
    const LayerDescription layer = linear->weight().describe(device);
    summary.layers.push_back({.name = layer.name,
                              .rows = layer.rows,
                              .columns = layer.columns,
                              .method = layer.method,
                              .pattern = layer.pattern,
                              .density = layer.density,
                              .backend = layer.backend});
  }
  for (const Parameter* parameter : model.parameters()) summary.kept_parameters += parameter->count();
}

std::int64_t parameters_of(const Transformer& model) {
  std::int64_t count = 0;
  for (const Parameter* parameter : model.parameters()) count += parameter->count();
  return count;
}

bool has_sparse_layers(const Transformer& model) {
  for (const Linear* linear : model.linears())
    if (linear->weight().spec().method != "dense") return true;
  return false;
}

struct Phase {
  bool dense = false;
  bool adapters = true;  // where the configuration has some
};

// Lays the model and its activations out on a planning device.
struct Plan {
  std::unique_ptr<Device> device;
  PlannedSharding sharding;
  Transformer model;
  std::unique_ptr<Activations> activations;

  // ranks: that share the optimizer's state.
  Plan(const Config& config, Mode mode, std::int64_t activation_batch, std::int64_t ranks, Phase phase = {})
      : device(Device::plan(Device::means_gpu(config.run.device))),
        sharding(ranks),
        model(*device, config, mode, phase.dense, &sharding) {
    if (config.adapters.rank > 0 && phase.adapters) model.insert_adapters(*device);
    if (activation_batch > 0)
      activations = std::make_unique<Activations>(
          *device, config.model, config.run.precision, activation_batch, config.model.context,
          mode == Mode::training ? recompute_named(config.train.recompute) : Recompute::inference);
  }
};

void fill_memory(ModelSummary& summary, const Memory& held, const Plan& dense) {
  for (int index = 0; index < kPurposeCount; ++index) {
    const auto purpose = static_cast<Purpose>(index);
    // The shared workspace grows until all shapes have been seen and belongs to no layer: whoever knows its size sets
    // workspace_bytes. Data is one batch of ids.
    if (purpose == Purpose::workspace || purpose == Purpose::data) continue;
    const std::int64_t bytes = held.bytes(purpose), dense_bytes = dense.device->memory().bytes(purpose);
    if (bytes > 0 || dense_bytes > 0)
      summary.memory.push_back({.purpose = std::string(name_of(purpose)), .bytes = bytes, .dense_bytes = dense_bytes});
  }
}

// As many as the configuration names: how many a launcher will start is not known.
std::int64_t sharing_ranks(const Config& config) {
  return config.distributed.zero == 1 ? config.distributed.virtual_ranks : 1;
}

}  // namespace

std::int64_t sequences_at_once(const Config& config) {
  return config.train.micro_batch > 0 ? config.train.micro_batch : config.train.batch_tokens / config.model.context;
}

double sparse_layers_ratio(const Transformer& model) {
  std::int64_t bytes = 0, dense = 0;
  for (const Linear* linear : model.linears()) {
    if (linear->weight().spec().method == "dense") continue;
    bytes += linear->weight().bytes();
    dense += linear->weight().dense_bytes();
  }
  return dense == 0 ? 1.0 : static_cast<double>(bytes) / static_cast<double>(dense);
}

ModelSummary summarize(Device& device, const Transformer& model, Mode mode, std::int64_t activation_batch) {
  ModelSummary summary;
  fill_layers(summary, device, model);
  const Plan dense(dense_config(model.config()), mode, activation_batch,
                   model.sharding() ? model.sharding()->ranks() : 1);
  summary.dense_parameters = parameters_of(dense.model);
  fill_memory(summary, device.memory(), dense);
  summary.sparse_layers_ratio = sparse_layers_ratio(model);
  if (mode == Mode::training && has_sparse_layers(model))
    summary.dense_steps = phase_start(model.config().train, model.config().weights.start);
  return summary;
}

ModelSummary plan_summary(const Config& config, Mode mode, std::int64_t activation_batch) {
  const Plan plan(config, mode, activation_batch, sharing_ranks(config));
  ModelSummary summary = summarize(*plan.device, plan.model, mode, activation_batch);
  for (LayerSummary& layer : summary.layers)
    if (layer.method != "dense") layer.backend = "chosen when a run starts";
  return summary;
}

ModelSummary checkpoint_summary(const Config& config, const CheckpointReader& checkpoint, Mode mode,
                                std::int64_t activation_batch) {
  const CheckpointState& state = checkpoint.state();
  const Plan plan(config, mode, activation_batch, sharing_ranks(config),
                  {.dense = state.dense_phase, .adapters = state.adapters});
  ModelSummary summary = summarize(*plan.device, plan.model, mode, activation_batch);
  if (summary.dense_steps > 0) summary.dense_steps = state.sparse_start;
  const std::map<std::string, PlanEntry> plans = checkpoint.plans();
  const std::int64_t tokens = sequences_at_once(config) * config.model.context;
  const std::vector<const Linear*> linears = plan.model.linears();
  for (std::size_t i = 0; i < linears.size(); ++i) {
    const std::string subject = linears[i]->weight().plan_subject();
    if (subject.empty()) continue;
    const std::string stored = stored_backends(plans, subject, tokens, mode);
    summary.layers[i].backend = stored.empty() ? "not chosen for batches of this size" : stored;
  }
  return summary;
}

}  // namespace filigree
