// The weight of a linear layer, whatever its storage: the one interface behind which a sparse method lives.
// T tokens, K inputs, N outputs; W is (N, K) row-major.
//
//   forward    y (T, N) = x (T, K) · Wᵀ + bias
//   backward   dx (T, K) = dy (T, N) · W, and the gradient dyᵀ · x of the values, in the values' own storage
//
// A method may use another matrix for dx than for y (SLoPe does); its class says so. Adding a method is adding a class
// here, its name in layer_policy.cpp, a page in docs/ and a test.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/block_shape.h"
#include "core/device.h"
#include "core/pattern.h"
#include "kernels/activation/activation.h"
#include "sparsity/parameter.h"
#include "sparsity/plan.h"

namespace filigree {

// Arrays of a checkpoint. A sink takes tensors of the device that it was made for; a source fills host memory and
// throws UserError when an array is missing or has another shape.
class CheckpointSink {
 public:
  virtual ~CheckpointSink() = default;
  enum class File : std::uint8_t { model, optimizer };
  virtual void put(File file, const std::string& name, const Tensor& tensor) = 0;
  // `state` is master(), m() or v() of the parameter, of which this rank may keep a part: a checkpoint has all of it.
  virtual void put_state(const Parameter& parameter, const std::string& name, const Tensor& state);
};
class CheckpointSource {
 public:
  virtual ~CheckpointSource() = default;
  virtual bool has(CheckpointSink::File file, const std::string& name) const = 0;
  // Copies the stored array into `out`, whose shape the model expects, rounding where `out` has fewer bits.
  virtual void load(CheckpointSink::File file, const std::string& name, const Tensor& out) const = 0;
};

// Loads an array to where `out` lies.
void load_tensor(Device& device, const CheckpointSource& source, CheckpointSink::File file, const std::string& name,
                 const Tensor& out);

// Values go to the model file; master and moments, where they exist, to the optimizer file. Loading without the
// optimizer file (inference, `model.init`) takes the master from the values.
void save_parameter(CheckpointSink& sink, const Parameter& parameter);
void load_parameter(Device& device, const CheckpointSource& source, Parameter& parameter, bool with_optimizer);

struct LinearSpec {
  std::string name;          // of the layer, e.g. "blocks.3.mlp.up"
  std::int64_t inputs = 0;   // K
  std::int64_t outputs = 0;  // N
  DType dtype = DType::f32;  // of values and activations
  Mode mode = Mode::training;
  // dense: y and dy may have this many more columns. They are 0 in y; in dy they have to be.
  std::int64_t spare_outputs = 0;
  std::string method = "dense";
  Pattern pattern = {};            // SLoPe
  BlockShape block = {16, 16};     // block
  double density = 0.5;            // block: share of the blocks kept
  std::string mask = "random";     // random | magnitude; block: balanced | diagonal-band, too
  bool fixed_column_mask = false;  // SLoPe: choose W^{R,C}'s columns once
  float dx_rescale = 1.0f;         // SLoPe: factor on dx
  bool scale_by_energy = true;     // initial values times 1 / sqrt(kept energy)
  std::uint64_t seed = 1;
  const StateSharding* sharding = nullptr;  // of the optimizer's state; null: none
};

// One row of `inspect`.
struct LayerDescription {
  std::string name;
  std::int64_t rows = 0, columns = 0;
  std::string method;
  std::string pattern;  // "2:4", "16x16"; "" when dense
  double density = 1.0;
  std::string backend;     // e.g. "forward sparse, dx sparse, dw sparse"
  bool mask_valid = true;  // every group keeps what its pattern says
};

class LinearWeight {
 public:
  explicit LinearWeight(LinearSpec spec) : spec_(std::move(spec)) {}
  virtual ~LinearWeight() = default;
  LinearWeight(const LinearWeight&) = delete;
  LinearWeight& operator=(const LinearWeight&) = delete;

  const LinearSpec& spec() const { return spec_; }

  // bias (N) fp32 may be empty. y and x have the spec's dtype.
  virtual void forward(Device& device, const Tensor& y, const Tensor& x, const Tensor& bias) = 0;
  virtual void input_gradient(Device& device, const Tensor& dx, const Tensor& dy) = 0;
  // The same two beside an activation a, gelu or relu, for weights whose product can take it along (matmul.h's
  // epilogues, block_products.h); the others return false and have done nothing.
  //   z (T, N) = x · Wᵀ + bias,  y (T, N) = a(z)
  //   dz (T, K) = (dy · W) · a'(z)                  z (T, K): what the layer's input is the activation of
  // relu's derivative follows from its output: its z is y (the same array), and relu(z) in the second form.
  virtual bool forward_activated(Device& /*device*/, Activation /*activation*/, const Tensor& /*y*/,
                                 const Tensor& /*z*/, const Tensor& /*x*/, const Tensor& /*bias*/) {
    return false;
  }
  virtual bool input_gradient_activated(Device& /*device*/, Activation /*activation*/, const Tensor& /*dz*/,
                                        const Tensor& /*dy*/, const Tensor& /*z*/) {
    return false;
  }
  // accumulate: add to the gradient (later micro-batches and chunks).
  virtual void weight_gradient(Device& device, const Tensor& dy, const Tensor& x, bool accumulate) = 0;

  // Times and chooses kernels for products of `tokens` rows; no effect on values. Without it the sparse kernels run.
  virtual void plan(Device& device, PlanTable& table, std::int64_t tokens) = 0;
  // What plans call this weight (shape, pattern, type); "" of one that has no choice.
  virtual std::string plan_subject() const { return ""; }

  virtual std::vector<Parameter*> parameters() = 0;
  // Rebuilds whatever is derived from the values (packed copies, second masks). Called after each optimizer step.
  virtual void refresh(Device& device) = 0;

  // Sets values (and masks, by the spec's rule) from a dense matrix (N, K) in fp32. A fresh random matrix is scaled for
  // the energy that the mask drops, where the spec says so; a trained one is taken as it is.
  virtual void initialize(Device& device, const Tensor& dense, bool trained) = 0;
  // The dense matrix (N, K), fp32, zeros where nothing is kept: of the values or, when training, their master; of m; of
  // v.
  enum class Content : std::uint8_t { values, m, v };
  virtual void expand(Device& device, const Tensor& dense, Content content) = 0;

  virtual void save(CheckpointSink& sink) = 0;
  virtual void load(Device& device, const CheckpointSource& source, bool with_optimizer) = 0;

  virtual LayerDescription describe(const Device& device) const = 0;
  // Bytes of values, masks, gradient, master, moments and derived copies, as allocated.
  virtual std::int64_t bytes() const = 0;
  std::int64_t dense_bytes() const {
    return Parameter::dense_bytes(spec_.inputs * spec_.outputs, spec_.dtype, spec_.mode, spec_.sharding);
  }

 protected:
  LinearSpec spec_;
};

// The array of a weight's parameter that holds this content.
inline const Tensor& state_of(const Parameter& parameter, LinearWeight::Content content) {
  if (content == LinearWeight::Content::values) return parameter.master();
  return content == LinearWeight::Content::m ? parameter.m() : parameter.v();
}

// The class that spec.method names.
std::unique_ptr<LinearWeight> make_linear_weight(Device& device, const LinearSpec& spec);

// A sparse weight that goes on from a dense one in mid-run: values, master and moments of kept entries are taken over
// as they are (no rescaling), the mask is chosen by the spec's rule from the current values.
std::unique_ptr<LinearWeight> sparsify(Device& device, LinearWeight& dense, const LinearSpec& spec);

}  // namespace filigree
