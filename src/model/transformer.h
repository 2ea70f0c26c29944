// A decoder-only transformer: GPT-2, OPT (pre-norm sizes) or LLaMA, by ModelConfig. Explicit forward and backward; the
// activations of a batch live in an Activations that is planned once.
// B sequences of S positions, T = B·S tokens, C width, V vocabulary.
//
// Layer names, as in configurations, `inspect` and checkpoints: embedding.tokens, embedding.positions,
// blocks.I.norm1, blocks.I.attention.qkv, blocks.I.attention.out, blocks.I.norm2, blocks.I.mlp.up, blocks.I.mlp.down,
// norm, head. qkv holds query, key, value rows in this order; llama's up holds gate rows, then up rows.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "model/activations.h"
#include "model/block.h"

namespace filigree {

struct KeyValueCache {
  std::vector<BlockCache> blocks;
  std::int64_t length = 0;  // tokens held
};

// Called with each parameter once backward has written its gradient: all work that does is queued.
using GradientReady = std::function<void(Parameter&)>;

class Transformer {
 public:
  // config.model must be resolved, its vocabulary known. dense_phase: before weights.start, every layer is dense.
  // sharding, where the optimizer's state is shared out among ranks, must outlive the model; every rank then makes the
  // same calls of what changes the model or saves it.
  Transformer(Device& device, const Config& config, Mode mode, bool dense_phase,
              const StateSharding* sharding = nullptr);

  const ModelConfig& model() const { return config_.model; }
  const Config& config() const { return config_; }
  const StateSharding* sharding() const { return sharding_; }

  // Initial values from the seed alone: normal(0, 0.02), projections into the residual stream scaled by
  // 1 / sqrt(2 · layers), norms 1, biases 0; sparse layers choose their mask and scale what they keep.
  void initialize(Device& device);

  // Forward and backward of one micro-batch: gradients of `scale` · sum of token losses are added (linear weights: set,
  // when `accumulate` is false; everything else always adds, see zero_gradients). tokens, targets (B, S) int32. Each
  // token's loss in nats is left in activations.losses(T). Nothing waits for a GPU. `ready` may be empty.
  void forward_backward(Device& device, Activations& activations, const Tensor& tokens, const Tensor& targets,
                        float scale, bool accumulate, const GradientReady& ready = {});
  // The same, and returns the sum of the losses.
  double train_batch(Device& device, Activations& activations, const Tensor& tokens, const Tensor& targets, float scale,
                     bool accumulate);
  // Sum of the token losses, forward only; each token's is left in activations.losses(T). Targets below 0 are ignored.
  // `greedy`, (T) int32 where it is wanted: 1 where the target is the most probable token.
  double loss(Device& device, Activations& activations, const Tensor& tokens, const Tensor& targets,
              const Tensor& greedy = {});

  KeyValueCache make_cache(Device& device, std::int64_t batch, std::int64_t context) const;
  // Appends tokens (B, S) to the cache and writes the logits (B, V) of each sequence's last token, in the run's type.
  void forward_cached(Device& device, Activations& activations, const Tensor& tokens, KeyValueCache& cache,
                      const Tensor& logits);
  // Logits (T, V) of every position.
  void logits(Device& device, Activations& activations, const Tensor& tokens, const Tensor& logits);

  // Zeroes what train_batch always adds to: embeddings, norms, biases, a tied head.
  void zero_gradients(Device& device);

  // Chooses kernels for batches of `tokens` rows. In the dense phase the sparse products to come are planned as well,
  // so that a run knows all its choices, and keeps them in every checkpoint, from its start.
  void plan(Device& device, PlanTable& table, std::int64_t tokens);
  void refresh(Device& device);
  // The dense phase is over: every layer that the configuration makes sparse becomes so, moments included.
  void start_sparse_phase(Device& device);
  void insert_adapters(Device& device);
  bool has_adapters() const;
  bool dense_phase() const { return dense_phase_; }

  std::vector<Linear*> linears();  // head included, tied or not
  std::vector<const Linear*> linears() const;
  std::vector<Parameter*> parameters();  // each once
  std::vector<const Parameter*> parameters() const;
  std::vector<Parameter*> parameters_as_they_get_ready();  // the same, in the order of forward_backward's calls
  void save(CheckpointSink& sink) const;
  void load(Device& device, const CheckpointSource& source, bool with_optimizer);
  // Starts from the values of another run, whose configuration is `from`. A sparse layer may start from a dense one's
  // matrix (mask by this configuration's rule, no rescaling) or from its own storage, a dense layer from a sparse one's
  // expanded matrix with its adapter merged. Throws UserError where the models do not go together.
  void load_initial(Device& device, const CheckpointSource& source, const Config& from, bool from_adapters);

 private:
  // In the order in which backward is done with them: head and last norm, the blocks from the last, embeddings.
  std::size_t ready_groups() const { return blocks_.size() + 2; }
  std::vector<Parameter*> ready_group(std::size_t group);
  void forward_blocks(Device& device, Activations& activations, const Tensor& tokens, std::int64_t batch,
                      std::int64_t sequence);
  void head_losses(Device& device, Activations& activations, const Tensor& targets, const Tensor& greedy,
                   const float* scale, bool accumulate);
  LinearSpec spec_of(const std::string& name, std::int64_t inputs, std::int64_t outputs, bool dense_phase) const;
  std::unique_ptr<Linear> make_linear(Device& device, const std::string& name, std::int64_t inputs,
                                      std::int64_t outputs, bool bias);

  Config config_;
  Mode mode_;
  bool dense_phase_;
  const StateSharding* sharding_;
  OwnedTensor rotary_table_;              // (context, D) fp32, llama
  Parameter tokens_;                      // (V, C)
  std::unique_ptr<Parameter> positions_;  // (context, C); gpt2, opt
  std::vector<std::unique_ptr<Block>> blocks_;
  Norm norm_;
  std::unique_ptr<Linear> head_;
};

}  // namespace filigree
