#include "sparsity/parameter.h"

#include "kernels/elementwise/elementwise.h"

namespace filigree {

Parameter::Parameter(Device& device, const ParameterOptions& options, Mode mode) : options_(options) {
  require(options.room == 0 || options.spare_rows == 0, options.name + ": room and spare rows exclude each other");
  Memory& memory = device.memory();
  const auto array = [&](Purpose purpose, DType dtype, std::int64_t more) {
    const std::size_t bytes = static_cast<std::size_t>(options.shape.count()) * size_of(dtype);
    return OwnedTensor(memory.allocate(purpose, bytes + static_cast<std::size_t>(more)), dtype, options.shape);
  };
  values_ = array(Purpose::weights, options.dtype, options.room + spare_bytes(options.dtype));
  if (mode == Mode::inference) return;
  gradient_ = array(Purpose::gradients, DType::f32, spare_bytes(DType::f32));
  if (options.dtype != DType::f32) master_ = memory.tensor(Purpose::masters, DType::f32, options.shape);
  m_ = memory.tensor(Purpose::moments, DType::f32, options.shape);
  v_ = memory.tensor(Purpose::moments, DType::f32, options.shape);
}

std::int64_t Parameter::spare_bytes(DType dtype) const {
  if (options_.spare_rows == 0) return 0;
  return options_.spare_rows * options_.shape[-1] * static_cast<std::int64_t>(size_of(dtype));
}

namespace {

Tensor first_rows(const Tensor& matrix, std::int64_t rows, std::int64_t spare) {
  require(rows >= matrix.shape[0] && rows <= matrix.shape[0] + spare, "a matrix has not so many rows, or more");
  return {matrix.data, matrix.dtype, {rows, matrix.shape[1]}};
}

}  // namespace

Tensor Parameter::values(std::int64_t rows) const {
  return first_rows(values_, rows, options_.spare_rows);
}

Tensor Parameter::gradient(std::int64_t rows) const {
  return first_rows(gradient_, rows, options_.spare_rows);
}

void Parameter::round_master(Device& device) {
  if (has_master()) convert(device, values_, master_);
}

void Parameter::assign(Device& device, const Tensor& source) {
  convert(device, master(), source);
  round_master(device);
}

std::int64_t Parameter::bytes() const {
  std::int64_t sum = options_.room + spare_bytes(options_.dtype);
  if (!gradient_.empty()) sum += spare_bytes(DType::f32);
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
