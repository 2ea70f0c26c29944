#include "sparsity/slope_weight.h"

#include <cmath>
#include <utility>
#include <vector>

#include "core/hash.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/nm/nm_cusparselt.h"
#include "kernels/nm/nm_pack.h"

namespace filigree {

using File = CheckpointSink::File;

namespace {

// Bytes of metadata behind the values of a matrix that a GPU's sparse kernels serve; 0 for others, with the reason.
std::int64_t metadata_room(Device& device, const LinearSpec& spec, std::int64_t rows, std::int64_t columns,
                           std::string& refusal, std::string& slow_packing) {
  if (device.plans_gpu()) return cuda::cusparselt_planned_metadata(rows, columns, spec.pattern, spec.dtype);
  if constexpr (kBuiltWithCuda) {
    if (device.is_cuda()) {
      refusal = cuda::cusparselt_refuses(device, rows, columns, spec.pattern, spec.dtype);
      if (!refusal.empty()) return 0;
      if (std::string reason = cuda::cusparselt_order_unknown(device, rows, columns); !reason.empty())
        slow_packing = std::move(reason);
      return cuda::cusparselt_metadata_bytes(device, rows, columns);
    }
  }
  return 0;
}

Tensor behind(const Tensor& values, std::int64_t bytes) {
  if (bytes == 0 || values.empty()) return {};
  return {static_cast<std::byte*>(values.data) + values.bytes(), DType::u8, {bytes}};
}

}  // namespace

SlopeWeight::SlopeWeight(Device& device, const LinearSpec& spec)
    : LinearWeight(spec),
      values_(device,
              {.name = spec.name + ".weight.values",
               .shape = {spec.outputs, kept_columns(spec.inputs, spec.pattern)},
               .dtype = spec.dtype,
               .decay = true,
               .room = metadata_room(device, spec, spec.outputs, spec.inputs, refusal_, slow_packing_),
               .sharding = spec.sharding},
              spec.mode) {
  if (device.is_cuda()) {
    const bool unplanned = spec.mode == Mode::inference && values_.options().room > 0;
    forward_backend_ = unplanned ? Backend::sparse : Backend::dense;
    dx_backend_ = dw_backend_ = Backend::dense;
  }
  const Pattern pattern = spec.pattern;
  require(spec.inputs % pattern.of == 0, spec.name + ": inputs are no multiple of the pattern");
  Memory& memory = device.memory();
  mask_ = memory.tensor(Purpose::metadata, DType::u8, {spec.outputs, mask_bytes(spec.inputs)});
  if (spec.mode == Mode::inference) return;
  require(spec.outputs % pattern.of == 0, spec.name + ": outputs are no multiple of the pattern");
  const Shape backward{spec.inputs, kept_columns(spec.outputs, pattern)};
  backward_room_ = metadata_room(device, spec, spec.inputs, spec.outputs, refusal_, slow_packing_);
  const std::int64_t bytes = backward.count() * static_cast<std::int64_t>(size_of(spec.dtype)) + backward_room_;
  backward_values_ =
      OwnedTensor(memory.allocate(Purpose::weights, static_cast<std::size_t>(bytes)), spec.dtype, backward);
  backward_mask_ = memory.tensor(Purpose::metadata, DType::u8, {spec.inputs, mask_bytes(spec.outputs)});
}

NmMatrix SlopeWeight::row_pruned() const {
  const Tensor& values = values_.values();
  return {values, mask_, spec_.outputs, spec_.inputs, spec_.pattern, behind(values, values_.options().room)};
}

NmMatrix SlopeWeight::column_pruned() const {
  return {backward_values_, backward_mask_, spec_.inputs,
          spec_.outputs,    spec_.pattern,  behind(backward_values_, backward_room_)};
}

void SlopeWeight::refresh(Device& device) {
  if (spec_.mode == Mode::inference) return;
  const bool reselect = !spec_.fixed_column_mask || !columns_chosen_;
  nm_double_prune(device, column_pruned(), row_pruned(), reselect, 0, spec_.outputs);
  pack(device, column_pruned());
  columns_chosen_ = true;
}

void SlopeWeight::pack(Device& device, const NmMatrix& matrix) const {
  if constexpr (kBuiltWithCuda)
    if (!matrix.metadata.empty()) cuda::cusparselt_pack(device, matrix);
}

void SlopeWeight::initialize(Device& device, const Tensor& dense, bool trained) {
  if (spec_.mask == "magnitude")
    nm_select_magnitude(device, mask_, dense, spec_.pattern);
  else
    nm_select_random(device, mask_, spec_.outputs, spec_.inputs, spec_.pattern,
                     Random(spec_.seed, RandomPurpose::mask, fnv1a32(spec_.name)));
  const WholeState values = values_.room(device, values_.master());
  NmMatrix master = row_pruned();
  master.values = values;
  nm_compress(device, master, dense, false);
  if (spec_.scale_by_energy && !trained) {
    // Kept weights grow by 1 / sqrt(share of the energy that was kept), so that y keeps its variance.
    const double all = sum_of_squares(device, dense);
    const double kept = sum_of_squares(device, master.values);
    if (kept > 0.0) scale(device, master.values, static_cast<float>(std::sqrt(all / kept)));
  }
  values_.assign(device, master.values);
  pack(device, row_pruned());
  columns_chosen_ = false;
  refresh(device);
}

void SlopeWeight::take_moment(Device& device, Content content, const Tensor& dense) {
  const Tensor& state = state_of(values_, content);
  const WholeState whole = values_.room(device, state);
  NmMatrix moment = row_pruned();
  moment.values = whole;
  nm_compress(device, moment, dense, false);
  values_.keep(device, state, whole);
}

void SlopeWeight::expand(Device& device, const Tensor& dense, Content content) {
  const WholeState whole = values_.whole(device, state_of(values_, content));
  NmMatrix source = row_pruned();
  source.values = whole;
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
  require_user(mask_valid(device), name + ": a group keeps another number of entries than " + to_string(spec_.pattern) +
                                       "; the checkpoint is damaged or of another pattern");
  pack(device, row_pruned());
  columns_chosen_ = false;
  if (spec_.fixed_column_mask && with_optimizer && spec_.mode == Mode::training) {
    load_tensor(device, source, File::optimizer, spec_.name + ".weight.column_mask", backward_mask_);
    columns_chosen_ = true;
  }
  refresh(device);
}

bool SlopeWeight::mask_valid(const Device& device) const {
  if (mask_.view().empty()) return true;  // a laid-out plan holds no mask to check
  std::vector<std::uint8_t> bytes(mask_.view().bytes());
  device.copy_to_host(bytes.data(), mask_);
  const std::int64_t stride = mask_bytes(spec_.inputs);
  const int of = spec_.pattern.of;
  for (std::int64_t row = 0; row < spec_.outputs; ++row)
    for (std::int64_t begin = 0; begin < spec_.inputs; begin += of) {
      int kept = 0;
      for (std::int64_t column = begin; column < begin + of; ++column)
        kept += (bytes[static_cast<std::size_t>(row * stride + column / 8)] >> (column % 8)) & 1;
      if (kept != spec_.pattern.keep) return false;
    }
  return true;
}

LayerDescription SlopeWeight::describe(const Device& device) const {
  std::string backend = std::string("forward ") + name_of(forward_backend_);
  if (spec_.mode == Mode::training)
    backend += std::string(", dx ") + name_of(dx_backend_) + ", dw " + name_of(dw_backend_);
  if (!refusal_.empty()) backend += " (" + refusal_ + ")";
  if (!slow_packing_.empty()) backend += " (metadata slowly, by the library: " + slow_packing_ + ")";
  return {.name = spec_.name,
          .rows = spec_.outputs,
          .columns = spec_.inputs,
          .method = "slope",
          .pattern = to_string(spec_.pattern),
          .density = spec_.pattern.density(),
          .backend = backend,
          .mask_valid = mask_valid(device)};
}

std::int64_t SlopeWeight::bytes() const {
  std::int64_t sum = values_.bytes() + backward_room_;
  for (const OwnedTensor* tensor : {&mask_, &backward_values_, &backward_mask_})
    if (!tensor->empty()) sum += static_cast<std::int64_t>(tensor->view().bytes());
  return sum;
}

}  // namespace filigree
