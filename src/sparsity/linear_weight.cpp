#include "sparsity/linear_weight.h"

#include "sparsity/block_weight.h"
#include "sparsity/dense_weight.h"
#include "sparsity/slope_weight.h"

namespace filigree {

using File = CheckpointSink::File;

void CheckpointSink::put_state(const Parameter& parameter, const std::string& name, const Tensor& state) {
  require(!parameter.sharded(), name + ": this rank has a part of it only");
  put(File::optimizer, name, state);
}

void save_parameter(CheckpointSink& sink, const Parameter& parameter) {
  sink.put(File::model, parameter.name(), parameter.values());
  if (!parameter.trainable()) return;
  if (parameter.has_master()) sink.put_state(parameter, parameter.name() + ".master", parameter.master());
  sink.put_state(parameter, parameter.name() + ".m", parameter.m());
  sink.put_state(parameter, parameter.name() + ".v", parameter.v());
}

void load_tensor(Device& device, const CheckpointSource& source, File file, const std::string& name,
                 const Tensor& out) {
  if (!device.is_cuda()) return source.load(file, name, out);
  std::vector<std::byte> staged(out.bytes());
  source.load(file, name, {staged.data(), out.dtype, out.shape});
  device.copy_from_host(out, staged.data());
}

namespace {

void load_state(Device& device, const CheckpointSource& source, const std::string& name, const Parameter& parameter,
                const Tensor& state) {
  const WholeState whole = parameter.room(device, state);
  load_tensor(device, source, File::optimizer, name, whole);
  parameter.keep(device, state, whole);
}

}  // namespace

void load_parameter(Device& device, const CheckpointSource& source, Parameter& parameter, bool with_optimizer) {
  const bool optimizer = with_optimizer && parameter.trainable();
  const WholeState master = parameter.room(device, parameter.master());
  if (optimizer && parameter.has_master())
    load_tensor(device, source, File::optimizer, parameter.name() + ".master", master);
  else
    load_tensor(device, source, File::model, parameter.name(), master);
  parameter.assign(device, master);
  if (!optimizer) return;
  load_state(device, source, parameter.name() + ".m", parameter, parameter.m());
  load_state(device, source, parameter.name() + ".v", parameter, parameter.v());
}

std::unique_ptr<LinearWeight> make_linear_weight(Device& device, const LinearSpec& spec) {
  if (spec.method == "dense") return std::make_unique<DenseWeight>(device, spec);
  if (spec.method == "slope") return std::make_unique<SlopeWeight>(device, spec);
  if (spec.method == "block") return std::make_unique<BlockWeight>(device, spec);
  throw Error("no weight method is called '" + spec.method + "'");
}

namespace {

template <typename Weight>
std::unique_ptr<LinearWeight> sparsify_as(Device& device, LinearWeight& dense, const LinearSpec& spec) {
  auto sparse = std::make_unique<Weight>(device, spec);
  const Shape shape{spec.outputs, spec.inputs};
  const OwnedTensor content = device.memory().tensor(Purpose::workspace, DType::f32, shape);
  dense.expand(device, content, LinearWeight::Content::values);
  sparse->initialize(device, content, true);
  dense.expand(device, content, LinearWeight::Content::m);
  sparse->take_moment(device, LinearWeight::Content::m, content);
  dense.expand(device, content, LinearWeight::Content::v);
  sparse->take_moment(device, LinearWeight::Content::v, content);
  return sparse;
}

}  // namespace

std::unique_ptr<LinearWeight> sparsify(Device& device, LinearWeight& dense, const LinearSpec& spec) {
  if (spec.method == "slope") return sparsify_as<SlopeWeight>(device, dense, spec);
  if (spec.method == "block") return sparsify_as<BlockWeight>(device, dense, spec);
  throw Error("no weight method called '" + spec.method + "' can be taken up in mid-run");
}

}  // namespace filigree
