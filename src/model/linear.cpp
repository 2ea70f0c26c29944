#include "model/linear.h"

#include "kernels/activation/activation.h"
#include "kernels/elementwise/elementwise.h"

namespace filigree {

Linear::Linear(Device& device, std::unique_ptr<LinearWeight> weight, bool bias) : weight_(std::move(weight)) {
  const LinearSpec& spec = weight_->spec();
  if (bias)
    bias_ = std::make_unique<Parameter>(
        device, ParameterOptions{.name = spec.name + ".bias", .shape = {spec.outputs}, .dtype = DType::f32}, spec.mode);
}

void Linear::forward(Device& device, const Tensor& y, const Tensor& x) {
  weight_->forward(device, y, x, bias_values());
  if (adapter_) adapter_->forward(device, y, x);
}

void Linear::backward(Device& device, const Tensor& dx, const Tensor& dy, const Tensor& x, bool accumulate) {
  weight_->weight_gradient(device, dy, x, accumulate);
  if (!dx.empty()) weight_->input_gradient(device, dx, dy);
  if (adapter_) adapter_->backward(device, dx, dy, x, accumulate);
  if (bias_) add_column_sums(device, bias_->gradient(), dy);
}

// With an adapter, what the activation is taken of, or its gradient, is complete only after another product.
void Linear::forward_activated(Device& device, Activation activation, const Tensor& y, const Tensor& z,
                               const Tensor& x) {
  if (!adapter_ && weight_->forward_activated(device, activation, y, z, x, bias_values())) return;
  forward(device, z, x);  // relu's z is y
  activation_forward(device, {.kind = activation, .y = y, .x = z});
}

void Linear::backward_activated(Device& device, Activation activation, const Tensor& dz, const Tensor& dy,
                                const Tensor& x, const Tensor& z, bool accumulate) {
  const bool fused = !adapter_ && weight_->input_gradient_activated(device, activation, dz, dy, z);
  backward(device, fused ? Tensor{} : dz, dy, x, accumulate);
  if (!fused) activation_backward(device, {.kind = activation, .dx = dz, .dy = dz, .x = z});
}

void Linear::insert_adapter(Device& device, std::int64_t rank, bool scaled_init) {
  const LinearSpec& spec = weight_->spec();
  adapter_ = std::make_unique<Adapter>(device, AdapterSpec{.name = spec.name,
                                                           .inputs = spec.inputs,
                                                           .outputs = spec.outputs,
                                                           .rank = rank,
                                                           .scaled_init = scaled_init,
                                                           .dtype = spec.dtype,
                                                           .mode = spec.mode,
                                                           .seed = spec.seed,
                                                           .sharding = spec.sharding});
  if (!device.memory().is_plan()) adapter_->initialize(device);
}

std::vector<Parameter*> Linear::matrix_parameters() {
  std::vector<Parameter*> all = weight_->parameters();
  if (adapter_)
    for (Parameter* parameter : adapter_->parameters()) all.push_back(parameter);
  return all;
}

void Linear::save(CheckpointSink& sink) const {
  weight_->save(sink);
  if (bias_) save_parameter(sink, *bias_);
  if (adapter_) adapter_->save(sink);
}

void Linear::load(Device& device, const CheckpointSource& source, bool with_optimizer) {
  weight_->load(device, source, with_optimizer);
  if (bias_) load_parameter(device, source, *bias_, with_optimizer);
  if (adapter_) adapter_->load(device, source, with_optimizer);
}

}  // namespace filigree
