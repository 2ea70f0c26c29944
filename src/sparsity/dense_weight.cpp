#include "sparsity/dense_weight.h"

#include "kernels/elementwise/elementwise.h"
#include "kernels/matmul/matmul.h"

namespace filigree {

DenseWeight::DenseWeight(Device& device, const LinearSpec& spec)
    : LinearWeight(spec),
      owned_(std::make_unique<Parameter>(device,
                                         ParameterOptions{.name = spec.name + ".weight",
                                                          .shape = {spec.outputs, spec.inputs},
                                                          .dtype = spec.dtype,
                                                          .decay = true,
                                                          .spare_rows = spec.spare_outputs,
                                                          .sharding = spec.sharding},
                                         spec.mode)),
      weight_(owned_.get()) {}

DenseWeight::DenseWeight(const LinearSpec& spec, Parameter& shared) : LinearWeight(spec), weight_(&shared) {
  require(shared.values().shape == Shape({spec.outputs, spec.inputs}), "shared weight has another shape");
}

void DenseWeight::forward(Device& device, const Tensor& y, const Tensor& x, const Tensor& bias) {
  matmul(device, {.y = y, .a = x, .b = weight_->values(y.shape[1]), .bias = bias, .transpose_b = true});
}

void DenseWeight::input_gradient(Device& device, const Tensor& dx, const Tensor& dy) {
  matmul(device, {.y = dx, .a = dy, .b = weight_->values(dy.shape[1])});
}

bool DenseWeight::forward_activated(Device& device, Activation activation, const Tensor& y, const Tensor& z,
                                    const Tensor& x, const Tensor& bias) {
  const bool gelu = activation == Activation::gelu;
  matmul(device, {.y = y,
                  .a = x,
                  .b = weight_->values(),
                  .bias = bias,
                  .transpose_b = true,
                  .epilogue = gelu ? Epilogue::gelu_forward : Epilogue::relu_forward,
                  .pre_activation = gelu ? z : Tensor{}});
  return true;
}

bool DenseWeight::input_gradient_activated(Device& device, Activation activation, const Tensor& dz, const Tensor& dy,
                                           const Tensor& z) {
  if (activation != Activation::gelu) return false;
  matmul(device, {.y = dz, .a = dy, .b = weight_->values(), .epilogue = Epilogue::gelu_backward, .pre_activation = z});
  return true;
}

void DenseWeight::weight_gradient(Device& device, const Tensor& dy, const Tensor& x, bool accumulate) {
  matmul(device, {.y = weight_->gradient(dy.shape[1]), .a = dy, .b = x, .transpose_a = true, .accumulate = accumulate});
}

std::vector<Parameter*> DenseWeight::parameters() {
  return owned_ ? std::vector<Parameter*>{weight_} : std::vector<Parameter*>{};
}

void DenseWeight::initialize(Device& device, const Tensor& dense, bool) {
  weight_->assign(device, dense);
}

void DenseWeight::expand(Device& device, const Tensor& dense, Content content) {
  const WholeState whole = weight_->whole(device, state_of(*weight_, content));
  convert(device, dense, whole);
}

void DenseWeight::save(CheckpointSink& sink) {
  if (owned_) save_parameter(sink, *owned_);
}

void DenseWeight::load(Device& device, const CheckpointSource& source, bool with_optimizer) {
  if (owned_) load_parameter(device, source, *owned_, with_optimizer);
}

LayerDescription DenseWeight::describe(const Device&) const {
  return {.name = spec_.name,
          .rows = spec_.outputs,
          .columns = spec_.inputs,
          .method = "dense",
          .pattern = "",
          .backend = "dense"};
}

std::int64_t DenseWeight::bytes() const {
  return owned_ ? owned_->bytes() : 0;
}

}  // namespace filigree
