// SLoPe (Mozaffari et al., arXiv 2405.16325): a static N:M mask along the inputs, and a second pruning along the
// outputs for the input gradient alone. All three products and all state work on compressed storage.
//
//   forward   y  = x · (W^R)ᵀ
//   backward  dx = c · dy · W^{R,C}        W^{R,C}: the N:M largest of each column group of W^R (c: dx_rescale)
//             gradient = kept entries of dyᵀ · x
//
// The compressed values are the parameter, and the bit mask of W^R is the only record of the row mask: there is no
// dense copy, no byte mask, no dense gradient. (W^{R,C})ᵀ, values and mask, is derived from W^R by refresh(), bit for
// bit a function of W^R's values (and of the mask chosen first, when the column mask is fixed).
#pragma once

#include "kernels/nm/nm_format.h"
#include "sparsity/linear_weight.h"

namespace filigree {

class SlopeWeight final : public LinearWeight {
 public:
  // outputs and inputs must be multiples of pattern.of (inputs only, for inference).
  SlopeWeight(Device& device, const LinearSpec& spec);

  void forward(Device& device, const Tensor& y, const Tensor& x, const Tensor& bias) override;
  void input_gradient(Device& device, const Tensor& dx, const Tensor& dy) override;
  void weight_gradient(Device& device, const Tensor& dy, const Tensor& x, bool accumulate) override;
  void plan(Device& device, PlanTable& table, std::int64_t tokens) override;
  std::vector<Parameter*> parameters() override { return {&values_}; }
  void refresh(Device& device) override;
  void initialize(Device& device, const Tensor& dense, bool trained) override;
  void expand(Device& device, const Tensor& dense, Content content) override;
  void save(CheckpointSink& sink) override;
  void load(Device& device, const CheckpointSource& source, bool with_optimizer) override;
  LayerDescription describe() const override;
  std::int64_t bytes() const override;

  // Compresses a dense moment (N, K) with the mask: a dense run going sparse.
  void take_moment(Device& device, Content content, const Tensor& dense);

  NmMatrix row_pruned() const;     // W^R (N, K)
  NmMatrix column_pruned() const;  // (W^{R,C})ᵀ (K, N); training only

 private:
  void forward_product(Device& device, Backend backend, const Tensor& y, const Tensor& x, const Tensor& bias) const;
  void input_product(Device& device, Backend backend, const Tensor& dx, const Tensor& dy) const;
  void gradient_product(Device& device, Backend backend, const Tensor& dy, const Tensor& x, bool accumulate) const;
  std::string plan_key(const char* product, std::int64_t tokens) const;

  Parameter values_;             // (N, K·keep/of)
  OwnedTensor mask_;             // (N, mask_bytes(K))
  OwnedTensor backward_values_;  // (K, N·keep/of)
  OwnedTensor backward_mask_;    // (K, mask_bytes(N))
  bool columns_chosen_ = false;  // with a fixed column mask: chosen once
  Backend forward_backend_ = Backend::sparse;
  Backend dx_backend_ = Backend::sparse;
  Backend dw_backend_ = Backend::sparse;
};

}  // namespace filigree
