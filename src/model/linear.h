// A linear layer: a weight of any method, a bias, and an optional low-rank adapter. It does not know how its weight is
// stored. T tokens, K inputs, N outputs.
#pragma once

#include <memory>
#include <vector>

#include "sparsity/adapter.h"
#include "sparsity/linear_weight.h"

namespace filigree {

class Linear {
 public:
  Linear(Device& device, std::unique_ptr<LinearWeight> weight, bool bias);

  const std::string& name() const { return weight_->spec().name; }
  LinearWeight& weight() { return *weight_; }
  const LinearWeight& weight() const { return *weight_; }
  Adapter* adapter() { return adapter_.get(); }
  const Adapter* adapter() const { return adapter_.get(); }

  void forward(Device& device, const Tensor& y, const Tensor& x);  // y (T, N), x (T, K)
  // dx (T, K) is overwritten, or empty when nobody needs it. accumulate: add to the weight's gradient. The bias
  // gradient always accumulates.
  void backward(Device& device, const Tensor& dx, const Tensor& dy, const Tensor& x, bool accumulate);
  // The same of a layer beside an activation a, gelu or relu, in one product where the weight can. Before it: z (T, N)
  // is the layer's output and y (T, N) = a(z). Behind it: the layer's input is x (T, K) = a(z), and dz (T, K) takes
  // dx's place. Of relu nothing but y is kept: its z is y, before it as behind it.
  void forward_activated(Device& device, Activation activation, const Tensor& y, const Tensor& z, const Tensor& x);
  void backward_activated(Device& device, Activation activation, const Tensor& dz, const Tensor& dy, const Tensor& x,
                          const Tensor& z, bool accumulate);

  // A phase change: training goes on with another storage of the same weight.
  void replace_weight(std::unique_ptr<LinearWeight> weight) { weight_ = std::move(weight); }
  void insert_adapter(Device& device, std::int64_t rank, bool scaled_init);

  // Weight and adapter, without the bias.
  std::vector<Parameter*> matrix_parameters();
  Parameter* bias() { return bias_.get(); }
  void save(CheckpointSink& sink) const;
  void load(Device& device, const CheckpointSource& source, bool with_optimizer);

 private:
  Tensor bias_values() const { return bias_ ? bias_->values() : Tensor{}; }

  std::unique_ptr<LinearWeight> weight_;
  std::unique_ptr<Parameter> bias_;  // (N) fp32
  std::unique_ptr<Adapter> adapter_;
};

}  // namespace filigree
