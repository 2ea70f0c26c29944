#include "model/transformer.h"

#include <algorithm>
#include <cmath>

#include "core/hash.h"
#include "core/random.h"
#include "io/config_keys.h"
#include "io/model_presets.h"
#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/embedding/embedding.h"
#include "kernels/random/random_fill.h"
#include "kernels/rotary/rotary.h"
#include "model/stored_layer.h"
#include "sparsity/dense_weight.h"
#include "sparsity/layer_policy.h"

namespace filigree {
namespace {

// Logits of this many bytes exist at once: large enough that the head's products run at full speed (on a GPU each chunk
// reads and writes the head's whole gradient), small beside the activations of any batch worth training.
constexpr std::int64_t kLogitBytes = std::int64_t{448} << 20;
constexpr std::int64_t kGpuLogitBytes = std::int64_t{384} << 20;

// Tokens whose logits exist at once: chunks of nearly equal size, in whole tiles of the products.
std::int64_t logit_chunk(const Device& device, std::int64_t tokens, std::int64_t columns, DType dtype) {
  const std::int64_t bytes = device.is_cuda() ? kGpuLogitBytes : kLogitBytes;
  const std::int64_t tile = device.is_cuda() ? 256 : 64;
  const std::int64_t fitting =
      std::max(bytes / (columns * static_cast<std::int64_t>(size_of(dtype))) / tile * tile, tile);
  const std::int64_t chunks = (tokens + fitting - 1) / fitting;
  return std::max(((tokens + chunks - 1) / chunks + tile - 1) / tile * tile, tile);
}

// Columns that a dense head's logits have behind those of the vocabulary, so that their rows have a round length.
std::int64_t spare_logits(const ModelConfig& model) {
  return padded_vocab(model.vocab) - model.vocab;
}

// Also what no shape shows: a model with other heads or another epsilon would be loaded, and be a worse one.
void check_same_model(const ModelConfig& from, const ModelConfig& now) {
  require_user(from.arch == now.arch && from.tied == now.tied,
               "model.init: its model is " + from.arch + (from.tied ? ", tied" : ", untied") + ", this one is " +
                   now.arch + (now.tied ? ", tied" : ", untied"));
  std::string text;
  const auto compare = [&](const char* key, const auto& theirs, const auto& ours) {
    if (theirs == ours) return;
    const auto value = [](const auto& number) { return toml_value(ConfigValue(number)); };
    text += (text.empty() ? "" : ", ") + std::string("model.") + key + " = " + value(theirs) + " in place of " +
            value(ours);
  };
  compare("layers", from.layers, now.layers);
  compare("width", from.width, now.width);
  compare("heads", from.heads, now.heads);
  compare("kv_heads", from.kv_heads, now.kv_heads);
  compare("ffn", from.ffn, now.ffn);
  compare("vocab", from.vocab, now.vocab);
  compare("norm_epsilon", from.norm_epsilon, now.norm_epsilon);
  if (now.arch == "llama")
    compare("rope_base", from.rope_base, now.rope_base);
  else
    compare("context", from.context, now.context);
  require_user(text.empty(), "model.init: its model has " + text +
                                 "; leave the shape out of the configuration, and it is taken from there");
}

}  // namespace

Transformer::Transformer(Device& device, const Config& config, Mode mode, bool dense_phase,
                         const StateSharding* sharding)
    : config_(config),
      mode_(mode),
      dense_phase_(dense_phase),
      sharding_(sharding),
      tokens_(device,
              {.name = "embedding.tokens",
               .shape = {config.model.vocab, config.model.width},
               .dtype = config.run.precision,
               .spare_rows = config.model.tied ? spare_logits(config.model) : 0,
               .sharding = sharding},
              mode),
      norm_(device, "norm", config.model.arch == "llama" ? NormKind::rms : NormKind::layer, config.model.width,
            config.model.norm_epsilon, mode) {
  const ModelConfig& model = config_.model;
  require(model.vocab > 0 && model.layers > 0 && model.ffn > 0 && model.kv_heads > 0, "the model is not resolved");
  if (model.arch == "llama") {
    const Shape shape{model.context, model.width / model.heads};
    rotary_table_ = device.memory().tensor(Purpose::data, DType::f32, shape);
    if (!device.memory().is_plan()) {
      std::vector<float> angles(static_cast<std::size_t>(shape.count()));
      rotary_table({angles.data(), DType::f32, shape}, model.rope_base);
      device.copy_from_host(rotary_table_, angles.data());
    }
  } else {
    positions_ = std::make_unique<Parameter>(device,
                                             ParameterOptions{.name = "embedding.positions",
                                                              .shape = {model.context, model.width},
                                                              .dtype = config.run.precision,
                                                              .sharding = sharding},
                                             mode);
  }
  const LinearFactory factory = [&](const std::string& name, std::int64_t inputs, std::int64_t outputs, bool bias) {
    return make_linear(device, name, inputs, outputs, bias);
  };
  for (std::int64_t index = 0; index < model.layers; ++index)
    blocks_.push_back(std::make_unique<Block>(device, model, index, factory, mode, rotary_table_));
  if (model.tied) {
    const LinearSpec spec{.name = "head",
                          .inputs = model.width,
                          .outputs = model.vocab,
                          .dtype = config.run.precision,
                          .mode = mode,
                          .spare_outputs = spare_logits(model)};
    head_ = std::make_unique<Linear>(device, std::make_unique<DenseWeight>(spec, tokens_), false);
  } else {
    head_ = make_linear(device, "head", model.width, model.vocab, false);
  }
}

LinearSpec Transformer::spec_of(const std::string& name, std::int64_t inputs, std::int64_t outputs,
                                bool dense_phase) const {
  LinearSpec spec = layer_spec(config_, name, inputs, outputs, mode_, dense_phase);
  spec.sharding = sharding_;
  return spec;
}

std::unique_ptr<Linear> Transformer::make_linear(Device& device, const std::string& name, std::int64_t inputs,
                                                 std::int64_t outputs, bool bias) {
  LinearSpec spec = spec_of(name, inputs, outputs, dense_phase_);
  if (name == "head" && spec.method == "dense") spec.spare_outputs = spare_logits(config_.model);
  return std::make_unique<Linear>(device, make_linear_weight(device, spec), bias);
}

void Transformer::initialize(Device& device) {
  constexpr float kDeviation = 0.02f;
  const float residual = kDeviation / std::sqrt(2.0f * static_cast<float>(config_.model.layers));
  Memory& memory = device.memory();
  const auto draw = [&](const std::string& name, Shape shape, float deviation) {
    OwnedTensor dense = memory.tensor(Purpose::workspace, DType::f32, shape);
    fill_normal(device, dense, Random(config_.run.seed, RandomPurpose::initialization, fnv1a32(name)), deviation);
    return dense;
  };
  for (Parameter* table : {&tokens_, positions_.get()})
    if (table) table->assign(device, draw(table->name(), table->values().shape, kDeviation));
  for (Linear* linear : linears()) {
    if (linear == head_.get() && config_.model.tied) continue;
    const LinearSpec& spec = linear->weight().spec();
    const bool into_residual = spec.name.ends_with(".out") || spec.name.ends_with(".down");
    linear->weight().initialize(
        device, draw(spec.name, {spec.outputs, spec.inputs}, into_residual ? residual : kDeviation), false);
  }
  for (Parameter* parameter : parameters())
    if (parameter->name().ends_with(".gain")) fill(device, parameter->values(), 1.0f);
}

void Transformer::forward_blocks(Device& device, Activations& activations, const Tensor& tokens, std::int64_t batch,
                                 std::int64_t sequence) {
  const std::int64_t count = batch * sequence;
  const Tensor branch = activations.branch(count);
  embedding_forward(device, {.y = branch.reshaped({batch, sequence, config_.model.width}),
                             .tokens = tokens,
                             .table = tokens_.values(),
                             .positions = positions_ ? positions_->values() : Tensor{}});
  Tensor residual;
  for (std::size_t index = 0; index < blocks_.size(); ++index) {
    const BlockActivations kept = activations.block(static_cast<std::int64_t>(index), batch, sequence);
    blocks_[index]->forward(device, kept, branch, branch, residual, batch, sequence);
    residual = kept.sum2;
  }
  norm_.forward(device, activations.final_normed(count), activations.final_sum(count), activations.final_mean(count),
                activations.final_rstd(count), branch, residual);
}

// Losses of all tokens, chunk by chunk; with `scale` also the head's backward pass, which leaves the gradient of the
// final norm's output in place of that output.
void Transformer::head_losses(Device& device, Activations& activations, const Tensor& targets, const Tensor& greedy,
                              const float* scale, bool accumulate) {
  const std::int64_t tokens = targets.count();
  const LinearSpec& head = head_->weight().spec();
  const std::int64_t columns = head.outputs + head.spare_outputs;
  const Tensor normed = activations.final_normed(tokens);
  const Tensor losses = activations.losses(tokens);
  const std::int64_t chunk = logit_chunk(device, tokens, columns, config_.run.precision);
  for (std::int64_t begin = 0; begin < tokens; begin += chunk) {
    const std::int64_t rows = std::min(chunk, tokens - begin);
    const Shape shape{rows, columns};
    const std::size_t bytes = static_cast<std::size_t>(shape.count()) * size_of(config_.run.precision);
    const Tensor logits{device.scratch(Scratch::caller, bytes), config_.run.precision, shape};
    const Tensor x = normed.slice(begin, rows);
    head_->forward(device, logits, x);
    cross_entropy(device, {.loss = losses.slice(begin, rows),
                           .logits = logits,
                           .targets = targets.reshaped({tokens}).slice(begin, rows),
                           .greedy = greedy.empty() ? Tensor{} : greedy.slice(begin, rows),
                           .vocabulary = head.outputs,
                           .scale = scale ? *scale : 1.0f,
                           .loss_only = scale == nullptr});
    if (!scale) continue;
    // A tied head always adds: its gradient is the embedding's, which zero_gradients has cleared.
    const bool add = accumulate || begin > 0 || config_.model.tied;
    const Tensor dx = activations.narrow_gradient(tokens, config_.model.width).slice(begin, rows);
    head_->backward(device, dx, logits, x, add);
  }
}

double Transformer::train_batch(Device& device, Activations& activations, const Tensor& tokens, const Tensor& targets,
                                float scale, bool accumulate) {
  forward_backward(device, activations, tokens, targets, scale, accumulate);
  return sum(device, activations.losses(tokens.count()));
}

void Transformer::forward_backward(Device& device, Activations& activations, const Tensor& tokens,
                                   const Tensor& targets, float scale, bool accumulate, const GradientReady& ready) {
  const auto announce = [&](std::size_t group) {
    if (!ready) return;
    for (Parameter* parameter : ready_group(group)) ready(*parameter);
  };
  const std::int64_t batch = tokens.shape[0], sequence = tokens.shape[1], count = batch * sequence;
  forward_blocks(device, activations, tokens, batch, sequence);
  head_losses(device, activations, targets, {}, &scale, accumulate);

  const Tensor dsum = activations.dsum(count);
  fill(device, dsum, 0.0f);
  norm_.backward(device, dsum, activations.narrow_gradient(count, config_.model.width), activations.final_sum(count),
                 activations.final_mean(count), activations.final_rstd(count));
  announce(0);
  for (std::size_t index = blocks_.size(); index-- > 0;) {
    blocks_[index]->backward(device, activations, activations.block(static_cast<std::int64_t>(index), batch, sequence),
                             batch, sequence, accumulate);
    announce(blocks_.size() - index);
  }
  embedding_backward(device, {.dtable = tokens_.gradient(),
                              .dpositions = positions_ ? positions_->gradient() : Tensor{},
                              .dy = dsum.reshaped({batch, sequence, config_.model.width}),
                              .tokens = tokens});
  announce(blocks_.size() + 1);
}

double Transformer::loss(Device& device, Activations& activations, const Tensor& tokens, const Tensor& targets,
                         const Tensor& greedy) {
  forward_blocks(device, activations, tokens, tokens.shape[0], tokens.shape[1]);
  head_losses(device, activations, targets, greedy, nullptr, false);
  return sum(device, activations.losses(tokens.count()));
}

void Transformer::logits(Device& device, Activations& activations, const Tensor& tokens, const Tensor& logits) {
  forward_blocks(device, activations, tokens, tokens.shape[0], tokens.shape[1]);
  head_->forward(device, logits, activations.final_normed(tokens.count()));
}

KeyValueCache Transformer::make_cache(Device& device, std::int64_t batch, std::int64_t context) const {
  const ModelConfig& model = config_.model;
  const Shape shape{batch, context, model.kv_heads * (model.width / model.heads)};
  KeyValueCache cache;
  for (std::size_t index = 0; index < blocks_.size(); ++index)
    cache.blocks.push_back({device.memory().tensor(Purpose::cache, config_.run.precision, shape),
                            device.memory().tensor(Purpose::cache, config_.run.precision, shape)});
  return cache;
}

void Transformer::forward_cached(Device& device, Activations& activations, const Tensor& tokens, KeyValueCache& cache,
                                 const Tensor& logits) {
  const std::int64_t batch = tokens.shape[0], sequence = tokens.shape[1], count = batch * sequence;
  const std::int64_t width = config_.model.width;
  const Tensor branch = activations.branch(count);
  embedding_forward(device, {.y = branch.reshaped({batch, sequence, width}),
                             .tokens = tokens,
                             .table = tokens_.values(),
                             .positions = positions_ ? positions_->values() : Tensor{},
                             .start = cache.length});
  const SettledWeights settled(device);
  Tensor residual;
  for (std::size_t index = 0; index < blocks_.size(); ++index) {
    const BlockActivations scratch = activations.block(static_cast<std::int64_t>(index), batch, sequence);
    blocks_[index]->forward_cached(device, scratch, branch, branch, residual, batch, sequence, cache.length,
                                   cache.blocks[index]);
    residual = scratch.sum2;
  }
  cache.length += sequence;
  const Tensor normed = activations.final_normed(count);
  norm_.forward(device, normed, activations.final_sum(count), {}, {}, branch, residual);
  // Only the last position of each sequence is asked for.
  for (std::int64_t index = 0; index < batch; ++index)
    device.copy(branch.slice(index, 1), normed.slice(index * sequence + sequence - 1, 1));
  head_->forward(device, logits, branch.slice(0, batch));
}

void Transformer::zero_gradients(Device& device) {
  std::vector<Parameter*> adding = {&tokens_};
  if (positions_) adding.push_back(positions_.get());
  for (Parameter* parameter : norm_.parameters()) adding.push_back(parameter);
  for (const auto& block : blocks_) {
    for (Norm* norm : block->norms())
      for (Parameter* parameter : norm->parameters()) adding.push_back(parameter);
    for (Linear* linear : block->linears())
      if (linear->bias()) adding.push_back(linear->bias());
  }
  for (Parameter* parameter : adding) fill(device, parameter->gradient(), 0.0f);
}

void Transformer::plan(Device& device, PlanTable& table, std::int64_t tokens) {
  for (Linear* linear : linears()) {
    linear->weight().plan(device, table, tokens);
    const LinearSpec& now = linear->weight().spec();
    if (!dense_phase_ || (linear == head_.get() && config_.model.tied)) continue;
    const LinearSpec later = spec_of(now.name, now.inputs, now.outputs, false);
    if (later.method == now.method) continue;
    const auto weight = make_linear_weight(device, later);
    const OwnedTensor dense = device.memory().tensor(Purpose::workspace, DType::f32, {now.outputs, now.inputs});
    // Not the master: the ranks plan one after the other, and each may have a part of it.
    convert(device, dense, linear->weight().parameters().front()->values());
    weight->initialize(device, dense, true);
    weight->plan(device, table, tokens);
  }
}

void Transformer::refresh(Device& device) {
  for (Linear* linear : linears()) linear->weight().refresh(device);
}

void Transformer::start_sparse_phase(Device& device) {
  require(dense_phase_, "the model is in its sparse phase already");
  dense_phase_ = false;
  for (Linear* linear : linears()) {
    if (linear == head_.get() && config_.model.tied) continue;
    const LinearSpec& old = linear->weight().spec();
    const LinearSpec spec = spec_of(old.name, old.inputs, old.outputs, false);
    if (spec.method != old.method) linear->replace_weight(sparsify(device, linear->weight(), spec));
  }
}

void Transformer::insert_adapters(Device& device) {
  for (Linear* linear : linears())
    if (linear->weight().spec().method != "dense" && !linear->adapter())
      linear->insert_adapter(device, config_.adapters.rank, config_.adapters.init == "scaled");
}

bool Transformer::has_adapters() const {
  for (const Linear* linear : linears())
    if (linear->adapter()) return true;
  return false;
}

std::vector<Linear*> Transformer::linears() {
  std::vector<Linear*> all;
  for (const auto& block : blocks_)
    for (Linear* linear : block->linears()) all.push_back(linear);
  all.push_back(head_.get());
  return all;
}

std::vector<const Linear*> Transformer::linears() const {
  const std::vector<Linear*> all = const_cast<Transformer*>(this)->linears();
  return {all.begin(), all.end()};
}

namespace {

void append(std::vector<Parameter*>& all, const std::vector<Parameter*>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

std::vector<Parameter*> parameters_of(Block& block) {
  std::vector<Parameter*> all;
  for (Norm* norm : block.norms()) append(all, norm->parameters());
  for (Linear* linear : block.linears()) {
    append(all, linear->matrix_parameters());
    if (linear->bias()) all.push_back(linear->bias());
  }
  return all;
}

}  // namespace

std::vector<Parameter*> Transformer::parameters() {
  std::vector<Parameter*> all = ready_group(blocks_.size() + 1);
  for (const auto& block : blocks_) append(all, parameters_of(*block));
  append(all, ready_group(0));
  return all;
}

std::vector<Parameter*> Transformer::ready_group(std::size_t group) {
  std::vector<Parameter*> all;
  if (group == 0) {
    append(all, norm_.parameters());
    append(all, head_->matrix_parameters());
  } else if (group <= blocks_.size()) {
    append(all, parameters_of(*blocks_[blocks_.size() - group]));
  } else {
    all.push_back(&tokens_);
    if (positions_) all.push_back(positions_.get());
  }
  return all;
}

std::vector<Parameter*> Transformer::parameters_as_they_get_ready() {
  std::vector<Parameter*> all;
  for (std::size_t group = 0; group < ready_groups(); ++group) append(all, ready_group(group));
  return all;
}

std::vector<const Parameter*> Transformer::parameters() const {
  const std::vector<Parameter*> all = const_cast<Transformer*>(this)->parameters();
  return {all.begin(), all.end()};
}

void Transformer::save(CheckpointSink& sink) const {
  save_parameter(sink, tokens_);
  if (positions_) save_parameter(sink, *positions_);
  for (const auto& block : blocks_) {
    for (Norm* norm : block->norms())
      for (const Parameter* parameter : norm->parameters()) save_parameter(sink, *parameter);
    for (const Linear* linear : block->linears()) linear->save(sink);
  }
  for (const Parameter* parameter : norm_.parameters()) save_parameter(sink, *parameter);
  head_->save(sink);
}

void Transformer::load(Device& device, const CheckpointSource& source, bool with_optimizer) {
  load_parameter(device, source, tokens_, with_optimizer);
  if (positions_) load_parameter(device, source, *positions_, with_optimizer);
  for (const auto& block : blocks_) {
    for (Norm* norm : block->norms())
      for (Parameter* parameter : norm->parameters()) load_parameter(device, source, *parameter, with_optimizer);
    for (Linear* linear : block->linears()) linear->load(device, source, with_optimizer);
  }
  for (Parameter* parameter : norm_.parameters()) load_parameter(device, source, *parameter, with_optimizer);
  head_->load(device, source, with_optimizer);
}

void Transformer::load_initial(Device& device, const CheckpointSource& source, const Config& from, bool from_adapters) {
  check_same_model(from.model, config_.model);
  load_parameter(device, source, tokens_, false);
  if (positions_) load_parameter(device, source, *positions_, false);
  for (Parameter* parameter : norm_.parameters()) load_parameter(device, source, *parameter, false);
  for (const auto& block : blocks_)
    for (Norm* norm : block->norms())
      for (Parameter* parameter : norm->parameters()) load_parameter(device, source, *parameter, false);
  for (Linear* linear : linears()) {
    if (linear == head_.get() && config_.model.tied) continue;
    LinearWeight& weight = linear->weight();
    const LinearSpec& spec = weight.spec();
    const bool source_dense = is_stored_dense(source, spec.name);
    if (linear->bias()) load_parameter(device, source, *linear->bias(), false);
    if (!source_dense && spec.method != "dense") {
      require_user(!from_adapters, "model.init: its layer " + spec.name +
                                       " has an adapter, which a sparse layer cannot take in; start from a checkpoint "
                                       "before the adapters, or make the layer dense");
      weight.load(device, source, false);
      continue;
    }
    const OwnedTensor dense = device.memory().tensor(Purpose::workspace, DType::f32, {spec.outputs, spec.inputs});
    load_dense_matrix(device, source, from, {spec.name, spec.outputs, spec.inputs}, from_adapters, dense);
    weight.initialize(device, dense, true);
  }
}

}  // namespace filigree
