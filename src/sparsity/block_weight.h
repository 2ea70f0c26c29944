// Block sparsity: a static mask over whole blocks of the weight (docs/block.md). The three products and all state work
// on the kept blocks alone, and dx is the exact gradient of the forward product.
//
// The values of kept blocks are the parameter, block after block. The mask, one bit a block, says which those are; the
// lists that kernels walk are made from it. Blocks may hang over the weight's edge: they are stored whole, and what
// lies outside is zero and stays zero, for its gradient is.
#pragma once

#include "kernels/block/block_products.h"
#include "sparsity/linear_weight.h"

namespace filigree {

class BlockWeight final : public LinearWeight {
 public:
  BlockWeight(Device& device, const LinearSpec& spec);

  void forward(Device& device, const Tensor& y, const Tensor& x, const Tensor& bias) override;
  void input_gradient(Device& device, const Tensor& dx, const Tensor& dy) override;
  bool forward_activated(Device& device, Activation activation, const Tensor& y, const Tensor& z, const Tensor& x,
                         const Tensor& bias) override;
  bool input_gradient_activated(Device& device, Activation activation, const Tensor& dz, const Tensor& dy,
                                const Tensor& z) override;
  void weight_gradient(Device& device, const Tensor& dy, const Tensor& x, bool accumulate) override;
  void plan(Device& device, PlanTable& table, std::int64_t tokens) override;
  std::string plan_subject() const override;
  std::vector<Parameter*> parameters() override { return {&values_}; }
  void refresh(Device&) override {}  // nothing is derived from the values
  void initialize(Device& device, const Tensor& dense, bool trained) override;
  void expand(Device& device, const Tensor& dense, Content content) override;
  void save(CheckpointSink& sink) override;
  void load(Device& device, const CheckpointSource& source, bool with_optimizer) override;
  LayerDescription describe(const Device& device) const override;
  std::int64_t bytes() const override;

  // Takes the kept blocks of a dense moment (N, K): a dense run going sparse.
  void take_moment(Device& device, Content content, const Tensor& dense);

  BlockMatrix matrix() const { return matrix_of(values_.values()); }
  const Tensor& mask() const { return mask_; }  // (block rows, ⌈block columns / 8⌉) uint8, least significant bit first

 private:
  BlockMatrix matrix_of(const Tensor& values) const;
  std::int64_t blocks() const { return grid_.block_rows() * kept_; }
  std::vector<std::uint8_t> choose_mask(Device& device, const Tensor& dense) const;
  // Masks here are (block rows, block columns), a byte a block.
  void store_mask(Device& device, const std::vector<std::uint8_t>& mask);
  std::vector<std::uint8_t> stored_mask(const Device& device) const;
  void set_lists(Device& device, const std::vector<std::uint8_t>& mask);
  bool mask_valid(const Device& device) const;
  Backend forward_backend(const Device& device, const Tensor& x) const;
  void forward_product(Device& device, Backend backend, const Tensor& y, const Tensor& x, const Tensor& bias) const;
  void input_product(Device& device, Backend backend, const Tensor& dx, const Tensor& dy) const;
  void gradient_product(Device& device, Backend backend, const Tensor& dy, const Tensor& x, bool accumulate) const;
  Tensor dense_scratch(Device& device, DType dtype) const;

  BlockGrid grid_;
  std::int64_t kept_;  // blocks of each block row
  Parameter values_;   // (blocks, block.rows, block.columns)
  OwnedTensor mask_;
  OwnedTensor row_start_, row_entries_, column_start_, column_entries_, gradient_tiles_;  // as in DeviceBlockLists
  std::string refusal_;  // why a GPU has no fast sparse kernel for this weight
  Backend forward_backend_ = Backend::sparse;
  Backend dx_backend_ = Backend::sparse;
  Backend dw_backend_ = Backend::sparse;
};

}  // namespace filigree
