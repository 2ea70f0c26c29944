#include "sparsity/slope_weight.h"

#include <cmath>

#include "core/hash.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/matmul/matmul.h"
#include "kernels/nm/nm_matmul.h"
#include "kernels/nm/nm_pack.h"

namespace filigree {

using File = CheckpointSink::File;

SlopeWeight::SlopeWeight(Device& device, const LinearSpec& spec)
    : LinearWeight(spec),
      values_(device,
              {.name = spec.name + ".weight.values",
               .shape = {spec.outputs, kept_columns(spec.inputs, spec.pattern)},
               .dtype = spec.dtype,
               .decay = true},
              spec.mode) {
  const Pattern pattern = spec.pattern;
  require(spec.inputs % pattern.of == 0, spec.name + ": inputs are no multiple of the pattern");
  Memory& memory = device.memory();
  mask_ = memory.tensor(Purpose::metadata, DType::u8, {spec.outputs, mask_bytes(spec.inputs)});
  if (spec.mode == Mode::inference) return;
  require(spec.outputs % pattern.of == 0, spec.name + ": outputs are no multiple of the pattern");
  backward_values_ = memory.tensor(Purpose::weights, spec.dtype, {spec.inputs, kept_columns(spec.outputs, pattern)});
  backward_mask_ = memory.tensor(Purpose::metadata, DType::u8, {spec.inputs, mask_bytes(spec.outputs)});
}

NmMatrix SlopeWeight::row_pruned() const {
  return {values_.values(), mask_, spec_.outputs, spec_.inputs, spec_.pattern};
}

NmMatrix SlopeWeight::column_pruned() const {
  return {backward_values_, backward_mask_, spec_.inputs, spec_.outputs, spec_.pattern};
}

void SlopeWeight::forward(Device& device, const Tensor& y, const Tensor& x, const Tensor& bias) {
  // The choice was made for a batch. A few rows, as in decoding, read the compressed weights and nothing else.
  constexpr std::int64_t kFewRows = 16;
  const std::int64_t rows = x.count() / spec_.inputs;
  forward_product(device, rows <= kFewRows ? Backend::sparse : forward_backend_, y, x, bias);
}

void SlopeWeight::input_gradient(Device& device, const Tensor& dx, const Tensor& dy) {
  input_product(device, dx_backend_, dx, dy);
}

void SlopeWeight::weight_gradient(Device& device, const Tensor& dy, const Tensor& x, bool accumulate) {
  gradient_product(device, dw_backend_, dy, x, accumulate);
}

void SlopeWeight::forward_product(Device& device, Backend backend, const Tensor& y, const Tensor& x,
                                  const Tensor& bias) const {
  const NmMatrix weight = row_pruned();
  if (backend == Backend::sparse) {
    nm_matmul(device, {.y = y, .x = x, .weight = weight, .bias = bias});
    return;
  }
  const Shape shape{spec_.outputs, spec_.inputs};
  const std::size_t bytes = static_cast<std::size_t>(shape.count()) * size_of(spec_.dtype);
  const Tensor dense{device.scratch(Scratch::layer, bytes), spec_.dtype, shape};
  nm_expand(device, dense, weight);
  matmul(device, {.y = y, .a = x, .b = dense, .bias = bias, .transpose_b = true});
}

void SlopeWeight::input_product(Device& device, Backend backend, const Tensor& dx, const Tensor& dy) const {
  const NmMatrix weight = column_pruned();
  if (backend == Backend::sparse) {
    nm_matmul(device, {.y = dx, .x = dy, .weight = weight, .scale = spec_.dx_rescale});
    return;
  }
  const Shape shape{spec_.inputs, spec_.outputs};
  const std::size_t bytes = static_cast<std::size_t>(shape.count()) * size_of(spec_.dtype);
  const Tensor dense{device.scratch(Scratch::layer, bytes), spec_.dtype, shape};
  nm_expand(device, dense, weight);
  matmul(device, {.y = dx, .a = dy, .b = dense, .transpose_b = true, .scale = spec_.dx_rescale});
}

void SlopeWeight::gradient_product(Device& device, Backend backend, const Tensor& dy, const Tensor& x,
                                   bool accumulate) const {
  if (backend == Backend::sparse) {
    nm_matmul_gradient(device, {.gradient = values_.gradient(),
                                .dy = dy,
                                .x = x,
                                .mask = mask_,
                                .pattern = spec_.pattern,
                                .accumulate = accumulate});
    return;
  }
  const Shape shape{spec_.outputs, spec_.inputs};
  const std::size_t bytes = static_cast<std::size_t>(shape.count()) * sizeof(float);
  const Tensor dense{device.scratch(Scratch::layer, bytes), DType::f32, shape};
  matmul(device, {.y = dense, .a = dy, .b = x, .transpose_a = true});
  NmMatrix gradient = row_pruned();
  gradient.values = values_.gradient();
  nm_compress(device, gradient, dense, accumulate);
}

std::string SlopeWeight::plan_key(const char* product, std::int64_t tokens) const {
  return std::string(product) + " " + std::to_string(spec_.outputs) + "x" + std::to_string(spec_.inputs) + " " +
         to_string(spec_.pattern) + " " + std::string(name_of(spec_.dtype)) + " tokens " + std::to_string(tokens);
}

void SlopeWeight::plan(Device& device, PlanTable& table, std::int64_t tokens) {
  const std::string keys[] = {plan_key("forward", tokens), plan_key("dx", tokens), plan_key("dw", tokens)};
  Memory& memory = device.memory();
  // Operands of the timed products: random, for zeros flatter whatever they are timed with.
  const Random random(spec_.seed, RandomPurpose::benchmark, fnv1a32(spec_.name));
  const auto filled = [&](Shape shape) {
    OwnedTensor tensor = memory.tensor(Purpose::workspace, spec_.dtype, shape);
    with_compute_type(spec_.dtype, [&]<typename T>() {
      T* data = tensor.view().as<T>();
      for (std::int64_t i = 0; i < shape.count(); ++i)
        data[i] = T(random.uniform(static_cast<std::uint64_t>(i)) - 0.5f);
    });
    return tensor;
  };
  bool known = table.entries().contains(keys[0]);
  if (spec_.mode == Mode::training)
    known = known && table.entries().contains(keys[1]) && table.entries().contains(keys[2]);
  const bool measure = table.timing() && !known;
  const OwnedTensor x = measure ? filled({tokens, spec_.inputs}) : OwnedTensor();
  const OwnedTensor y = measure ? filled({tokens, spec_.outputs}) : OwnedTensor();

  forward_backend_ = table.choose(
      keys[0], [&] { forward_product(device, Backend::sparse, y, x, {}); },
      [&] { forward_product(device, Backend::dense, y, x, {}); });
  if (spec_.mode == Mode::inference) return;
  dw_backend_ = table.choose(
      keys[2], [&] { gradient_product(device, Backend::sparse, y, x, false); },
      [&] { gradient_product(device, Backend::dense, y, x, false); });
  dx_backend_ = table.choose(
      keys[1], [&] { input_product(device, Backend::sparse, x, y); },
      [&] { input_product(device, Backend::dense, x, y); });
}

void SlopeWeight::refresh(Device& device) {
  if (spec_.mode == Mode::inference) return;
  const bool reselect = !spec_.fixed_column_mask || !columns_chosen_;
  nm_double_prune(device, column_pruned(), row_pruned(), reselect, 0, spec_.outputs);
  columns_chosen_ = true;
}

void SlopeWeight::initialize(Device& device, const Tensor& dense, bool trained) {
  if (spec_.mask == "magnitude")
    nm_select_magnitude(device, mask_, dense, spec_.pattern);
  else
    nm_select_random(device, mask_, spec_.outputs, spec_.inputs, spec_.pattern,
                     Random(spec_.seed, RandomPurpose::mask, fnv1a32(spec_.name)));
  NmMatrix master = row_pruned();
  master.values = values_.master();
  nm_compress(device, master, dense, false);
  if (spec_.scale_by_energy && !trained) {
    // Kept weights grow by 1 / sqrt(share of the energy that was kept), so that y keeps its variance.
    const double all = sum_of_squares(device, dense);
    const double kept = sum_of_squares(device, values_.master());
    if (kept > 0.0) scale(device, values_.master(), static_cast<float>(std::sqrt(all / kept)));
  }
  values_.round_master(device);
  columns_chosen_ = false;
  refresh(device);
}

void SlopeWeight::take_moment(Device& device, Content content, const Tensor& dense) {
  NmMatrix moment = row_pruned();
  moment.values = content == Content::m ? values_.m() : values_.v();
  nm_compress(device, moment, dense, false);
}

void SlopeWeight::expand(Device& device, const Tensor& dense, Content content) {
  NmMatrix source = row_pruned();
  source.values = content == Content::m ? values_.m() : content == Content::v ? values_.v() : values_.master();
  nm_expand(device, dense, source);
}

void SlopeWeight::save(CheckpointSink& sink) {
  save_parameter(sink, values_);
  sink.put(File::model, spec_.name + ".weight.mask", mask_);
  // A column mask that is chosen once is no function of today's values: it is part of the run's state.
  if (spec_.fixed_column_mask && spec_.mode == Mode::training)
    sink.put(File::optimizer, spec_.name + ".weight.column_mask", backward_mask_);
}

void SlopeWeight::load(Device& device, const CheckpointSource& source, bool with_optimizer) {
  load_parameter(device, source, values_, with_optimizer);
  const std::string name = spec_.name + ".weight.mask";
  load_tensor(device, source, File::model, name, mask_);
  require_user(describe().mask_valid, name + ": a group keeps another number of entries than " +
                                          to_string(spec_.pattern) +
                                          "; the checkpoint is damaged or of another pattern");
  columns_chosen_ = false;
  if (spec_.fixed_column_mask && with_optimizer && spec_.mode == Mode::training) {
    load_tensor(device, source, File::optimizer, spec_.name + ".weight.column_mask", backward_mask_);
    columns_chosen_ = true;
  }
  refresh(device);
}

LayerDescription SlopeWeight::describe() const {
  bool valid = true;
  const auto* bytes = mask_.view().as<std::uint8_t>();
  const std::int64_t stride = mask_bytes(spec_.inputs);
  const int of = spec_.pattern.of;
  const std::int64_t rows = bytes == nullptr ? 0 : spec_.outputs;  // a laid-out plan holds no mask to check
  for (std::int64_t row = 0; row < rows && valid; ++row)
    for (std::int64_t begin = 0; begin < spec_.inputs && valid; begin += of) {
      int kept = 0;
      for (std::int64_t column = begin; column < begin + of; ++column)
        kept += (bytes[row * stride + column / 8] >> (column % 8)) & 1;
      valid = kept == spec_.pattern.keep;
    }
  std::string backend = std::string("forward ") + name_of(forward_backend_);
  if (spec_.mode == Mode::training)
    backend += std::string(", dx ") + name_of(dx_backend_) + ", dw " + name_of(dw_backend_);
  return {.name = spec_.name,
          .rows = spec_.outputs,
          .columns = spec_.inputs,
          .method = "slope",
          .pattern = to_string(spec_.pattern),
          .density = spec_.pattern.density(),
          .backend = backend,
          .mask_valid = valid};
}

std::int64_t SlopeWeight::bytes() const {
  std::int64_t sum = values_.bytes();
  for (const OwnedTensor* tensor : {&mask_, &backward_values_, &backward_mask_})
    if (!tensor->empty()) sum += static_cast<std::int64_t>(tensor->view().bytes());
  return sum;
}

}  // namespace filigree
