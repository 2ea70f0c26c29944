// One trainable array with everything that training keeps beside it. The optimizer, clipping and checkpoints see only
// flat arrays of equal length, so that dense and compressed storage are treated alike.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/device.h"
#include "core/tensor.h"

namespace filigree {

// What a layer is built for. Inference holds values only: no gradient, master, moments, or copies for backward.
enum class Mode : std::uint8_t { training, inference };

struct ParameterOptions {
  std::string name;          // as in checkpoints
  Shape shape;               // rows first; row-major
  DType dtype = DType::f32;  // of the values; bf16 values get an fp32 master
  bool decay = false;        // weight decay applies: matrices yes; biases, norms no
  bool adapter = false;      // low-rank adapters have a step counter and a learning rate of their own
  std::int64_t room = 0;     // bytes behind the values, in the same block of memory, for what a kernel reads with them
  // Rows of zeros behind the values and the gradient, for products that are faster with a rounder number of rows. They
  // belong to no entry: optimizer, norm and checkpoints do not see them. Not together with `room`.
  std::int64_t spare_rows = 0;
};

class Parameter {
 public:
  Parameter(Device& device, const ParameterOptions& options, Mode mode);

  const std::string& name() const { return options_.name; }
  const ParameterOptions& options() const { return options_; }
  std::int64_t count() const { return values_.view().count(); }
  bool trainable() const { return !gradient_.empty() || count() == 0; }

  const Tensor& values() const { return values_; }      // shape, dtype of the options
  const Tensor& gradient() const { return gradient_; }  // shape, fp32
  // The first `rows` rows of the matrix, from all of them to the spare ones included.
  Tensor values(std::int64_t rows) const;
  Tensor gradient(std::int64_t rows) const;
  const Tensor& m() const { return m_; }  // shape, fp32
  const Tensor& v() const { return v_; }  // shape, fp32
  // The fp32 values that the optimizer updates: the master, or the values themselves when they are fp32.
  const Tensor& master() const { return master_.empty() ? values_ : master_; }
  bool has_master() const { return !master_.empty(); }

  // Values from the master, rounded to nearest even. Nothing to do when they are the same array.
  void round_master(Device& device);
  // Sets master and values from fp32 or bf16 data of the same count.
  void assign(Device& device, const Tensor& source);

  // Bytes of values, gradient, master and moments, as allocated, spare rows included.
  std::int64_t bytes() const;
  // The same for an array of `count` entries without any sparsity; what `inspect` sets beside it.
  static std::int64_t dense_bytes(std::int64_t count, DType dtype, Mode mode);

 private:
  std::int64_t spare_bytes(DType dtype) const;

  ParameterOptions options_;
  OwnedTensor values_, gradient_, master_, m_, v_;
};

}  // namespace filigree
