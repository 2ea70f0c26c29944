#include "sparsity/adapter.h"

#include <cmath>

#include "core/hash.h"
#include "core/random.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/matmul/matmul.h"
#include "kernels/random/random_fill.h"

namespace filigree {
namespace {

ParameterOptions options(const AdapterSpec& spec, const char* part, Shape shape) {
  return {.name = spec.name + ".adapter." + part,
          .shape = shape,
          .dtype = spec.dtype,
          .decay = true,
          .adapter = true,
          .sharding = spec.sharding};
}

}  // namespace

Adapter::Adapter(Device& device, const AdapterSpec& spec)
    : spec_(spec),
      left_(device, options(spec, "left", {spec.rank, spec.inputs}), spec.mode),
      right_(device, options(spec, "right", {spec.outputs, spec.rank}), spec.mode) {}

void Adapter::initialize(Device& device) {
  const Random random(spec_.seed, RandomPurpose::adapter, fnv1a32(left_.name()));
  const float deviation = spec_.scaled_init ? 1.0f / std::sqrt(static_cast<float>(spec_.inputs)) : 1.0f;
  const OwnedTensor drawn = device.memory().tensor(Purpose::workspace, DType::f32, left_.values().shape);
  fill_normal(device, drawn, random, deviation);
  left_.assign(device, drawn);  // in bf16 for inference there is no master
  const WholeState zeros = right_.room(device, right_.master());
  fill(device, zeros, 0.0f);
  right_.assign(device, zeros);
}

void Adapter::forward(Device& device, const Tensor& y, const Tensor& x) {
  const std::int64_t tokens = x.count() / spec_.inputs;
  const Shape shape{tokens, spec_.rank};
  const Tensor u{device.scratch(Scratch::layer, static_cast<std::size_t>(shape.count()) * size_of(spec_.dtype)),
                 spec_.dtype, shape};
  matmul(device, {.y = u, .a = x, .b = left_.values(), .transpose_b = true});
  matmul(device, {.y = y, .a = u, .b = right_.values(), .transpose_b = true, .accumulate = true, .scale = factor()});
}

void Adapter::backward(Device& device, const Tensor& dx, const Tensor& dy, const Tensor& x, bool accumulate) {
  const std::int64_t tokens = x.count() / spec_.inputs;
  const Shape shape{tokens, spec_.rank};
  const std::size_t bytes = static_cast<std::size_t>(shape.count()) * size_of(spec_.dtype);
  // One scratch array in turn for u (recomputed: cheaper than keeping it) and du.
  const Tensor u{device.scratch(Scratch::layer, bytes), spec_.dtype, shape};
  matmul(device, {.y = u, .a = x, .b = left_.values(), .transpose_b = true});
  matmul(device,
         {.y = right_.gradient(), .a = dy, .b = u, .transpose_a = true, .accumulate = accumulate, .scale = factor()});
  const Tensor& du = u;
  matmul(device, {.y = du, .a = dy, .b = right_.values(), .scale = factor()});
  matmul(device, {.y = left_.gradient(), .a = du, .b = x, .transpose_a = true, .accumulate = accumulate});
  if (!dx.empty()) matmul(device, {.y = dx, .a = du, .b = left_.values(), .accumulate = true});
}

void Adapter::merge_into(Device& device, const Tensor& dense) {
  if (spec_.dtype == DType::f32) {
    matmul(device, {.y = dense, .a = right_.values(), .b = left_.values(), .accumulate = true, .scale = factor()});
    return;
  }
  // Merging happens once, on export: masters (or widened values) keep the sum exact to fp32.
  Memory& memory = device.memory();
  const OwnedTensor left = memory.tensor(Purpose::workspace, DType::f32, left_.values().shape);
  const OwnedTensor right = memory.tensor(Purpose::workspace, DType::f32, right_.values().shape);
  convert(device, left, left_.whole(device, left_.master()));
  convert(device, right, right_.whole(device, right_.master()));
  matmul(device, {.y = dense, .a = right, .b = left, .accumulate = true, .scale = factor()});
}

void Adapter::save(CheckpointSink& sink) const {
  save_parameter(sink, left_);
  save_parameter(sink, right_);
}

void Adapter::load(Device& device, const CheckpointSource& source, bool with_optimizer) {
  load_parameter(device, source, left_, with_optimizer);
  load_parameter(device, source, right_, with_optimizer);
}

}  // namespace filigree
