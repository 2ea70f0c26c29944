#include "model/block.h"

#include "kernels/attention/attention.h"
#include "kernels/rotary/rotary.h"

namespace filigree {
namespace {

// What the derivative of gelu or relu is computed from: relu's follows from its output.
const Tensor& pre_activation(const BlockActivations& kept) {
  return kept.up.empty() ? kept.hidden : kept.up;
}

}  // namespace

Norm::Norm(Device& device, const std::string& name, NormKind kind, std::int64_t width, double epsilon, Mode mode)
    : kind_(kind),
      epsilon_(static_cast<float>(epsilon)),
      gain_(device, {.name = name + ".gain", .shape = {width}, .dtype = DType::f32}, mode) {
  if (kind == NormKind::layer)
    bias_ = std::make_unique<Parameter>(
        device, ParameterOptions{.name = name + ".bias", .shape = {width}, .dtype = DType::f32}, mode);
}

void Norm::forward(Device& device, const Tensor& y, const Tensor& sum, const Tensor& mean, const Tensor& rstd,
                   const Tensor& x, const Tensor& residual) {
  norm_forward(device, {.kind = kind_,
                        .y = y,
                        .sum = sum,
                        .mean = kind_ == NormKind::layer ? mean : Tensor{},
                        .rstd = rstd,
                        .x = x,
                        .residual = residual,
                        .gain = gain_.values(),
                        .bias = bias_ ? bias_->values() : Tensor{},
                        .epsilon = epsilon_});
}

void Norm::backward(Device& device, const Tensor& dsum, const Tensor& dy, const Tensor& sum, const Tensor& mean,
                    const Tensor& rstd) {
  norm_backward(device, {.kind = kind_,
                         .ds = dsum,
                         .dgain = gain_.gradient(),
                         .dbias = bias_ ? bias_->gradient() : Tensor{},
                         .dy = dy,
                         .sum = sum,
                         .mean = kind_ == NormKind::layer ? mean : Tensor{},
                         .rstd = rstd,
                         .gain = gain_.values()});
}

std::vector<Parameter*> Norm::parameters() {
  std::vector<Parameter*> all = {&gain_};
  if (bias_) all.push_back(bias_.get());
  return all;
}

std::vector<const Parameter*> Norm::parameters() const {
  std::vector<const Parameter*> all = {&gain_};
  if (bias_) all.push_back(bias_.get());
  return all;
}

namespace {

std::string block_name(std::int64_t index) {
  return "blocks." + std::to_string(index);
}

NormKind norm_kind(const ModelConfig& model) {
  return model.arch == "llama" ? NormKind::rms : NormKind::layer;
}

Activation activation_of(const ModelConfig& model) {
  if (model.arch == "llama") return Activation::swiglu;
  return model.arch == "opt" ? Activation::relu : Activation::gelu;
}

}  // namespace

Block::Block(Device& device, const ModelConfig& model, std::int64_t index, const LinearFactory& make_linear, Mode mode,
             const Tensor& rotary_table)
    : heads_(static_cast<int>(model.heads)),
      kv_heads_(static_cast<int>(model.kv_heads)),
      activation_(activation_of(model)),
      rotary_table_(rotary_table),
      norm1_(device, block_name(index) + ".norm1", norm_kind(model), model.width, model.norm_epsilon, mode),
      norm2_(device, block_name(index) + ".norm2", norm_kind(model), model.width, model.norm_epsilon, mode) {
  const std::string name = block_name(index);
  const bool bias = model.arch != "llama";
  qkv_ = make_linear(name + ".attention.qkv", model.width, qkv_width(model), bias);
  out_ = make_linear(name + ".attention.out", model.width, model.width, bias);
  up_ = make_linear(name + ".mlp.up", model.width, up_width(model), bias);
  down_ = make_linear(name + ".mlp.down", model.ffn, model.width, bias);
}

void Block::rotate(Device& device, const Tensor& qkv, std::int64_t batch, std::int64_t sequence, std::int64_t start,
                   bool inverse) const {
  if (rotary_table_.empty()) return;
  rotary(device, {.qkv = qkv.reshaped({batch, sequence, qkv.shape[-1]}),
                  .table = rotary_table_,
                  .start = start,
                  .heads = heads_,
                  .kv_heads = kv_heads_,
                  .inverse = inverse});
}

void Block::mlp_forward(Device& device, const BlockActivations& kept, const Tensor& branch) {
  norm2_.forward(device, kept.normed2, kept.sum2, kept.mean2, kept.rstd2, branch, kept.sum1);
  if (activation_ == Activation::swiglu) {
    up_->forward(device, kept.up, kept.normed2);
    activation_forward(device, {.kind = activation_, .y = kept.hidden, .x = kept.up});
  } else {
    up_->forward_activated(device, activation_, kept.hidden, pre_activation(kept), kept.normed2);
  }
  down_->forward(device, branch, kept.hidden);
}

void Block::forward(Device& device, const BlockActivations& kept, const Tensor& branch, const Tensor& x,
                    const Tensor& residual, std::int64_t batch, std::int64_t sequence) {
  norm1_.forward(device, kept.normed1, kept.sum1, kept.mean1, kept.rstd1, x, residual);
  qkv_->forward(device, kept.qkv, kept.normed1);
  rotate(device, kept.qkv, batch, sequence, 0, false);
  const auto by_sequence = [&](const Tensor& tensor) { return tensor.reshaped({batch, sequence, tensor.shape[-1]}); };
  attention_forward(device, {.out = by_sequence(kept.attended),
                             .logsumexp = kept.logsumexp,
                             .qkv = by_sequence(kept.qkv),
                             .heads = heads_,
                             .kv_heads = kv_heads_});
  out_->forward(device, branch, kept.attended);
  mlp_forward(device, kept, branch);
}

void Block::backward(Device& device, const Activations& activations, const BlockActivations& kept, std::int64_t batch,
                     std::int64_t sequence, bool accumulate) {
  const std::int64_t tokens = batch * sequence;
  const Tensor dsum = activations.dsum(tokens);
  if (activations.recompute() == Recompute::block) {
    // sum1 is the whole input: run the block again. The branch array is free during the backward pass.
    forward(device, kept, activations.branch(tokens), kept.sum1, {}, batch, sequence);
  }
  const bool renorm = activations.recompute() == Recompute::activation || activations.recompute() == Recompute::norm;
  if (renorm) norm2_.forward(device, kept.normed2, {}, {}, {}, kept.sum2, {});
  if (activations.recompute() == Recompute::activation && activation_ != Activation::relu)
    activation_forward(device, {.kind = activation_, .y = kept.hidden, .x = kept.up});

  Tensor dup = activations.wide_gradient(device, tokens, kept.hidden.shape[-1]);
  if (activation_ == Activation::swiglu) {
    const Tensor dhidden = dup;
    dup = kept.up;  // in place: nothing reads the pre-activation after this, and its gradient is as wide
    down_->backward(device, dhidden, dsum, kept.hidden, accumulate);
    activation_backward(device, {.kind = activation_, .dx = dup, .dy = dhidden, .x = kept.up});
  } else {
    down_->backward_activated(device, activation_, dup, dsum, kept.hidden, pre_activation(kept), accumulate);
  }
  const Tensor dnormed = activations.narrow_gradient(tokens, dsum.shape[-1]);
  up_->backward(device, dnormed, dup, kept.normed2, accumulate);
  norm2_.backward(device, dsum, dnormed, kept.sum2, kept.mean2, kept.rstd2);

  if (renorm) norm1_.forward(device, kept.normed1, {}, {}, {}, kept.sum1, {});
  const Tensor dattended = activations.narrow_gradient(tokens, kept.attended.shape[-1]);
  out_->backward(device, dattended, dsum, kept.attended, accumulate);
  const Tensor dqkv = activations.wide_gradient(device, tokens, kept.qkv.shape[-1]);
  const auto by_sequence = [&](const Tensor& tensor) { return tensor.reshaped({batch, sequence, tensor.shape[-1]}); };
  attention_backward(device, {.dqkv = by_sequence(dqkv),
                              .dout = by_sequence(dattended),
                              .out = by_sequence(kept.attended),
                              .logsumexp = kept.logsumexp,
                              .qkv = by_sequence(kept.qkv),
                              .heads = heads_,
                              .kv_heads = kv_heads_});
  rotate(device, dqkv, batch, sequence, 0, true);
  qkv_->backward(device, dnormed, dqkv, kept.normed1, accumulate);
  norm1_.backward(device, dsum, dnormed, kept.sum1, kept.mean1, kept.rstd1);
}

void Block::forward_cached(Device& device, const BlockActivations& scratch, const Tensor& branch, const Tensor& x,
                           const Tensor& residual, std::int64_t batch, std::int64_t sequence, std::int64_t start,
                           BlockCache& cache) {
  norm1_.forward(device, scratch.normed1, scratch.sum1, {}, {}, x, residual);
  qkv_->forward(device, scratch.qkv, scratch.normed1);
  rotate(device, scratch.qkv, batch, sequence, start, false);
  const auto by_sequence = [&](const Tensor& tensor) { return tensor.reshaped({batch, sequence, tensor.shape[-1]}); };
  attention_cached(device, {.out = by_sequence(scratch.attended),
                            .qkv = by_sequence(scratch.qkv),
                            .keys = cache.keys,
                            .values = cache.values,
                            .start = start,
                            .heads = heads_,
                            .kv_heads = kv_heads_});
  out_->forward(device, branch, scratch.attended);
  mlp_forward(device, scratch, branch);
}

}  // namespace filigree
