// One trainable array with everything that training keeps beside it. The optimizer, clipping and checkpoints see only
// flat arrays of equal length, so that dense and compressed storage are treated alike.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/device.h"
#include "core/tensor.h"
#include "sparsity/state_sharding.h"

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
  const StateSharding* sharding = nullptr;  // null: the optimizer's state is whole
};

// An array of the optimizer's state from its first element to its last: itself, or a copy that a sharded one has in
// workspace.
class WholeState {
 public:
  explicit WholeState(const Tensor& itself) : view_(itself) {}
  explicit WholeState(OwnedTensor copy) : copy_(std::move(copy)), view_(copy_) {}
  const Tensor& view() const { return view_; }
  operator const Tensor&() const { return view_; }  // NOLINT: a view is what every kernel takes

 private:
  OwnedTensor copy_;
  Tensor view_;
};

// Elements [begin, begin + count) of a parameter, whose state this rank keeps from `offset` on in m, v and master.
struct StateRange {
  std::int64_t begin = 0, count = 0, offset = 0;
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
  // The optimizer's state, fp32: of the parameter's shape, or, where it is sharded, what this rank keeps of it.
  const Tensor& m() const { return m_; }
  const Tensor& v() const { return v_; }
  // The fp32 values that the optimizer updates: the master, or the values themselves (all of them) when they are fp32.
  const Tensor& master() const { return master_.empty() ? values_ : master_; }
  bool has_master() const { return !master_.empty(); }

  const StateShard& shard() const { return shard_; }
  bool sharded() const { return shard_.part > 0; }
  // What this rank updates: everything, or its part and the rest.
  std::vector<StateRange> kept() const;
  // m(), v() or master() of all ranks. All of them call it where it is sharded.
  WholeState whole(Device& device, const Tensor& state) const;
  // Room for another content of all of it, and taking from there what this rank keeps: the array itself, and nothing,
  // unless it is sharded.
  WholeState room(Device& device, const Tensor& state) const;
  void keep(Device& device, const Tensor& state, const Tensor& whole) const;

  // Values from the master, rounded to nearest even. Nothing to do when they are the same array. Not of a sharded one.
  void round_master(Device& device);
  // Sets master and values from fp32 or bf16 data of the same count, which may be room(device, master()).
  void assign(Device& device, const Tensor& source);

  // Bytes of values, gradient, master and moments, as allocated, spare rows included.
  std::int64_t bytes() const;
  // The same for an array of `count` entries without any sparsity; what `inspect` sets beside it.
  static std::int64_t dense_bytes(std::int64_t count, DType dtype, Mode mode, const StateSharding* sharding = nullptr);

 private:
  std::int64_t spare_bytes(DType dtype) const;

  ParameterOptions options_;
  StateShard shard_;
  OwnedTensor values_, gradient_, master_, m_, v_;
};

}  // namespace filigree
