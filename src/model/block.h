// One transformer block, pre-norm: attention and MLP, each behind a norm, on a residual stream.
//
//   sum1 = residual + branch           branch: the previous block's MLP output, added here, inside the norm's pass
//   sum2 = sum1 + attention(norm1(sum1))
//   out  = mlp(norm2(sum2))            added by the next block's norm1 or the final norm
//
// The residual stream's gradient `dsum` is updated in place: each norm adds its own contribution.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "kernels/activation/activation.h"
#include "kernels/norm/norm.h"
#include "model/activations.h"
#include "model/linear.h"

namespace filigree {

class Norm {
 public:
  Norm(Device& device, const std::string& name, NormKind kind, std::int64_t width, double epsilon, Mode mode);
  // sum = x + residual (either may be all there is: residual empty), y = norm(sum); statistics empty: not kept.
  void forward(Device& device, const Tensor& y, const Tensor& sum, const Tensor& mean, const Tensor& rstd,
               const Tensor& x, const Tensor& residual);
  // dsum accumulates.
  void backward(Device& device, const Tensor& dsum, const Tensor& dy, const Tensor& sum, const Tensor& mean,
                const Tensor& rstd);
  std::vector<Parameter*> parameters();
  std::vector<const Parameter*> parameters() const;

 private:
  NormKind kind_;
  float epsilon_;
  Parameter gain_;                   // (C) fp32
  std::unique_ptr<Parameter> bias_;  // (C) fp32, LayerNorm only
};

// Keys and values of the tokens that a block has seen, one array a block.
struct BlockCache {
  OwnedTensor keys;    // (B, context, G·D)
  OwnedTensor values;  // (B, context, G·D)
};

using LinearFactory = std::function<std::unique_ptr<Linear>(const std::string& name, std::int64_t inputs,
                                                            std::int64_t outputs, bool bias)>;

class Block {
 public:
  // `rotary_table` (context, D) fp32 for llama, empty otherwise.
  Block(Device& device, const ModelConfig& model, std::int64_t index, const LinearFactory& make_linear, Mode mode,
        const Tensor& rotary_table);

  // branch (T, C) receives the MLP's output. x (T, C) is what to add to `residual` (the previous block's branch, which
  // may be the same array), or, with an empty residual, the block's whole input.
  void forward(Device& device, const BlockActivations& kept, const Tensor& branch, const Tensor& x,
               const Tensor& residual, std::int64_t batch, std::int64_t sequence);
  void backward(Device& device, const Activations& activations, const BlockActivations& kept, std::int64_t batch,
                std::int64_t sequence, bool accumulate);
  // Generation: `sequence` new tokens after `start` cached ones.
  void forward_cached(Device& device, const BlockActivations& scratch, const Tensor& branch, const Tensor& x,
                      const Tensor& residual, std::int64_t batch, std::int64_t sequence, std::int64_t start,
                      BlockCache& cache);

  std::vector<Linear*> linears() { return {qkv_.get(), out_.get(), up_.get(), down_.get()}; }
  std::vector<Norm*> norms() { return {&norm1_, &norm2_}; }

 private:
  void mlp_forward(Device& device, const BlockActivations& kept, const Tensor& branch);
  void rotate(Device& device, const Tensor& qkv, std::int64_t batch, std::int64_t sequence, std::int64_t start,
              bool inverse) const;

  int heads_, kv_heads_;
  Activation activation_;
  Tensor rotary_table_;
  Norm norm1_, norm2_;
  std::unique_ptr<Linear> qkv_, out_, up_, down_;
};

}  // namespace filigree
