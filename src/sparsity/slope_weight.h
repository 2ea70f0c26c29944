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
//
// On a GPU the first two products are sparse where cuSPARSELt serves the matrix (2:4 in bf16) and plan() has seen the
// number of tokens; both matrices then carry the library's metadata behind their values. At inference other numbers of
// tokens are padded, and planned when they come. Few tokens by 2:4 in bf16 have a kernel of ours. All other products
// are dense ones, after unpacking into shared workspace or, for the gradient, before packing, band by band.
#pragma once

#include <functional>
#include <optional>

#include "kernels/nm/nm_matmul.h"
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
  std::string plan_subject() const override;
  std::vector<Parameter*> parameters() override { return {&values_}; }
  void refresh(Device& device) override;
  void initialize(Device& device, const Tensor& dense, bool trained) override;
  void expand(Device& device, const Tensor& dense, Content content) override;
  void save(CheckpointSink& sink) override;
  void load(Device& device, const CheckpointSource& source, bool with_optimizer) override;
  LayerDescription describe(const Device& device) const override;
  std::int64_t bytes() const override;

  // Compresses a dense moment (N, K) with the mask: a dense run going sparse.
  void take_moment(Device& device, Content content, const Tensor& dense);

  NmMatrix row_pruned() const;     // W^R (N, K)
  NmMatrix column_pruned() const;  // (W^{R,C})ᵀ (K, N); training only

 private:
  // y = x Wᵀ for either matrix. The sparse kernel gives way to the dense product where it cannot serve.
  void multiply(Device& device, Backend backend, const NmMatmulArgs& args) const;
  // The forward product on a GPU at inference, where any number of tokens may come.
  void infer(Device& device, const NmMatmulArgs& args);
  // Whether cuSPARSELt serves it; makes its plan when these tokens come first. Then the host waits.
  bool planned_for_inference(Device& device, std::int64_t tokens, bool bias);
  void gradient_product(Device& device, Backend backend, const Tensor& dy, const Tensor& x, bool accumulate) const;
  // Readies the sparse kernel of y = x Wᵀ for these tokens, on a GPU by the library's plan, made with product(). Its
  // algorithm; -1 where there is but one; nothing when no sparse kernel serves: then refusal_ says why.
  std::optional<int> ready(Device& device, const PlanTable& table, const std::string& key, const NmMatrix& weight,
                           std::int64_t tokens, bool bias, const std::function<NmMatmulArgs()>& product);
  // Renews the metadata of a matrix that has some.
  void pack(Device& device, const NmMatrix& matrix) const;
  bool mask_valid(const Device& device) const;

  std::string refusal_;              // why a GPU's sparse kernels do not serve this weight
  std::string slow_packing_;         // why the library itself must write their metadata after each update
  Parameter values_;                 // (N, K·keep/of)
  OwnedTensor mask_;                 // (N, mask_bytes(K))
  std::int64_t backward_room_ = 0;   // bytes behind the following, for metadata
  OwnedTensor backward_values_;      // (K, N·keep/of)
  OwnedTensor backward_mask_;        // (K, mask_bytes(N))
  bool columns_chosen_ = false;      // with a fixed column mask: chosen once
  std::int64_t planned_tokens_ = 0;  // at inference on a GPU: what forward_backend_ was chosen for
  Backend forward_backend_ = Backend::sparse;
  Backend dx_backend_ = Backend::sparse;
  Backend dw_backend_ = Backend::sparse;
};

}  // namespace filigree
