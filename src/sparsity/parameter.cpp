#include "sparsity/parameter.h"

#include "kernels/elementwise/elementwise.h"

namespace filigree {

Parameter::Parameter(Device& device, const ParameterOptions& options, Mode mode) : options_(options) {
  Memory& memory = device.memory();
  const std::size_t value_bytes = static_cast<std::size_t>(options.shape.count()) * size_of(options.dtype);
  values_ = OwnedTensor(memory.allocate(Purpose::weights, value_bytes + static_cast<std::size_t>(options.room)),
                        options.dtype, options.shape);
  if (mode == Mode::inference) return;
  gradient_ = memory.tensor(Purpose::gradients, DType::f32, options.shape);
  if (options.dtype != DType::f32) master_ = memory.tensor(Purpose::masters, DType::f32, options.shape);
  m_ = memory.tensor(Purpose::moments, DType::f32, options.shape);
  v_ = memory.tensor(Purpose::moments, DType::f32, options.shape);
}

void Parameter::round_master(Device& device) {
  if (has_master()) convert(device, values_, master_);
}

void Parameter::assign(Device& device, const Tensor& source) {
  convert(device, master(), source);
  round_master(device);
}

std::int64_t Parameter::bytes() const {
  std::int64_t sum = options_.room;
  for (const OwnedTensor* tensor : {&values_, &gradient_, &master_, &m_, &v_})
    if (!tensor->empty()) sum += static_cast<std::int64_t>(tensor->view().bytes());
  return sum;
}

std::int64_t Parameter::dense_bytes(std::int64_t count, DType dtype, Mode mode) {
  const auto value = static_cast<std::int64_t>(size_of(dtype));
  if (mode == Mode::inference) return count * value;
  const std::int64_t master = dtype == DType::f32 ? 0 : 4;
  return count * (value + 4 /* gradient */ + master + 8 /* m, v */);
}

}  // namespace filigree
