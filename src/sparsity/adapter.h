// Lazy low-rank adapter of a linear layer (SLoPe, arXiv 2405.16325, section 2.3), inserted late in training, with any
// weight method. T tokens, K inputs, N outputs, r rank.
//
//   y  += s · (x · leftᵀ) · rightᵀ                left (r, K), right (N, r)
//   u   = x · leftᵀ,  du = s · dy · right
//   dright = s · dyᵀ · u,  dleft = duᵀ · x,  dx += du · left
//
// s = 1/r with left ~ N(0, 1) as published, or s = 1 with left ~ N(0, 1/K); right starts at zero, so that insertion
// changes no output bit. The arrays have the shapes of a PEFT LoRA pair (A = left, B = right).
#pragma once

#include "sparsity/linear_weight.h"

namespace filigree {

struct AdapterSpec {
  std::string name;          // the layer's
  std::int64_t inputs = 0;   // K
  std::int64_t outputs = 0;  // N
  std::int64_t rank = 0;     // r
  bool scaled_init = false;  // N(0, 1/K) and s = 1 in place of N(0, 1) and s = 1/r
  DType dtype = DType::f32;
  Mode mode = Mode::training;
  std::uint64_t seed = 1;
  const StateSharding* sharding = nullptr;  // of the optimizer's state; null: none
};

class Adapter {
 public:
  Adapter(Device& device, const AdapterSpec& spec);

  void initialize(Device& device);
  void forward(Device& device, const Tensor& y, const Tensor& x);  // y accumulates
  void backward(Device& device, const Tensor& dx, const Tensor& dy, const Tensor& x,
                bool accumulate);  // dx accumulates
  // dense (N, K) fp32 += s · right · left.
  void merge_into(Device& device, const Tensor& dense);

  float factor() const { return spec_.scaled_init ? 1.0f : 1.0f / static_cast<float>(spec_.rank); }
  std::int64_t rank() const { return spec_.rank; }
  std::vector<Parameter*> parameters() { return {&left_, &right_}; }
  void save(CheckpointSink& sink) const;
  void load(Device& device, const CheckpointSource& source, bool with_optimizer);
  std::int64_t bytes() const { return left_.bytes() + right_.bytes(); }

 private:
  AdapterSpec spec_;
  Parameter left_;   // (r, K)
  Parameter right_;  // (N, r)
};

}  // namespace filigree
