// The dense weight: the baseline of every sparse one, and what sparse methods fall back to layer by layer.
#pragma once

#include "sparsity/linear_weight.h"

namespace filigree {

class DenseWeight final : public LinearWeight {
 public:
  DenseWeight(Device& device, const LinearSpec& spec);
  // Shares a parameter (N, K) that somebody else owns, saves and loads: the head of a model with a tied embedding.
  DenseWeight(const LinearSpec& spec, Parameter& shared);

  void forward(Device& device, const Tensor& y, const Tensor& x, const Tensor& bias) override;
  void input_gradient(Device& device, const Tensor& dx, const Tensor& dy) override;
  bool forward_activated(Device& device, Activation activation, const Tensor& y, const Tensor& z, const Tensor& x,
                         const Tensor& bias) override;
  bool input_gradient_activated(Device& device, Activation activation, const Tensor& dz, const Tensor& dy,
                                const Tensor& z) override;
  void weight_gradient(Device& device, const Tensor& dy, const Tensor& x, bool accumulate) override;
  void plan(Device&, PlanTable&, std::int64_t) override {}
  std::vector<Parameter*> parameters() override;
  void refresh(Device&) override {}
  void initialize(Device& device, const Tensor& dense, bool trained) override;
  void expand(Device& device, const Tensor& dense, Content content) override;
  void save(CheckpointSink& sink) override;
  void load(Device& device, const CheckpointSource& source, bool with_optimizer) override;
  LayerDescription describe(const Device& device) const override;
  std::int64_t bytes() const override;

 private:
  std::unique_ptr<Parameter> owned_;
  Parameter* weight_;  // (N, K)
};

}  // namespace filigree
