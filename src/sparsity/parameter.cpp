#include "sparsity/parameter.h"

#include "kernels/elementwise/elementwise.h"

namespace filigree {

namespace {

Tensor flat(const Tensor& tensor) {
  return tensor.reshaped({tensor.count()});
}

}  // namespace

Parameter::Parameter(Device& device, const ParameterOptions& options, Mode mode)
    : options_(options), shard_(state_shard(options.shape.count(), options.sharding)) {
  require(options.room == 0 || options.spare_rows == 0, options.name + ": room and spare rows exclude each other");
  Memory& memory = device.memory();
  const auto array = [&](Purpose purpose, DType dtype, std::int64_t more) {
    const std::size_t bytes = static_cast<std::size_t>(options.shape.count()) * size_of(dtype);
    return OwnedTensor(memory.allocate(purpose, bytes + static_cast<std::size_t>(more)), dtype, options.shape);
  };
  values_ = array(Purpose::weights, options.dtype, options.room + spare_bytes(options.dtype));
  if (mode == Mode::inference) return;
  gradient_ = array(Purpose::gradients, DType::f32, spare_bytes(DType::f32));
  const Shape kept = sharded() ? Shape{shard_.kept()} : options.shape;
  if (options.dtype != DType::f32) master_ = memory.tensor(Purpose::masters, DType::f32, kept);
  m_ = memory.tensor(Purpose::moments, DType::f32, kept);
  v_ = memory.tensor(Purpose::moments, DType::f32, kept);
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

std::vector<StateRange> Parameter::kept() const {
  std::vector<StateRange> ranges;
  if (sharded()) ranges.push_back({.begin = shard_.begin, .count = shard_.part, .offset = 0});
  if (shard_.rest > 0 || !sharded())
    ranges.push_back({.begin = shard_.rest_begin, .count = shard_.rest, .offset = shard_.part});
  return ranges;
}

WholeState Parameter::whole(Device& device, const Tensor& state) const {
  if (!sharded() || state.data == values_.view().data) return WholeState(state);
  OwnedTensor copy = device.memory().tensor(Purpose::workspace, DType::f32, options_.shape);
  const Tensor all = flat(copy);
  options_.sharding->gather(device, all.slice(0, shard_.rest_begin), state.slice(0, shard_.part));
  if (shard_.rest > 0) device.copy(all.slice(shard_.rest_begin, shard_.rest), state.slice(shard_.part, shard_.rest));
  return WholeState(std::move(copy));
}

WholeState Parameter::room(Device& device, const Tensor& state) const {
  if (!sharded() || state.data == values_.view().data) return WholeState(state);
  return WholeState(device.memory().tensor(Purpose::workspace, DType::f32, options_.shape));
}

void Parameter::keep(Device& device, const Tensor& state, const Tensor& whole) const {
  if (whole.data == state.data) return;
  for (const StateRange& range : kept())
    if (range.count > 0)
      convert(device, flat(state).slice(range.offset, range.count), flat(whole).slice(range.begin, range.count));
}

void Parameter::round_master(Device& device) {
  require(!sharded() || !has_master(), options_.name + ": its master is not whole");
  if (has_master()) convert(device, values_, master_);
}

void Parameter::assign(Device& device, const Tensor& source) {
  if (sharded() && has_master()) {
    keep(device, master_, source);
    return convert(device, values_, source);
  }
  if (source.data != master().data) convert(device, master(), source);
  round_master(device);
}

std::int64_t Parameter::bytes() const {
  std::int64_t sum = options_.room + spare_bytes(options_.dtype);
  if (!gradient_.empty()) sum += spare_bytes(DType::f32);
  for (const OwnedTensor* tensor : {&values_, &gradient_, &master_, &m_, &v_})
    if (!tensor->empty()) sum += static_cast<std::int64_t>(tensor->view().bytes());
  return sum;
}

std::int64_t Parameter::dense_bytes(std::int64_t count, DType dtype, Mode mode, const StateSharding* sharding) {
  const auto value = static_cast<std::int64_t>(size_of(dtype));
  if (mode == Mode::inference) return count * value;
  const std::int64_t master = dtype == DType::f32 ? 0 : 4;
  return count * (value + 4 /* gradient */) + state_shard(count, sharding).kept() * (master + 8 /* m, v */);
}

}  // namespace filigree
