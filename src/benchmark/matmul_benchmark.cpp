#include "benchmark/matmul_benchmark.h"

#include "benchmark/named_method.h"
#include "benchmark/timing.h"
#include "core/hash.h"
#include "core/random.h"
#include "io/model_layers.h"
#include "sparsity/linear_weight.h"

namespace filigree {
namespace {

OwnedTensor random(Device& device, DType dtype, Shape shape, const char* name) {
  OwnedTensor tensor = device.memory().tensor(Purpose::workspace, dtype, shape);
  const Random numbers(1, RandomPurpose::benchmark, fnv1a32(name));
  with_compute_type(dtype, [&]<typename T>() {
    std::vector<T> data(static_cast<std::size_t>(shape.count()));
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = T(numbers.uniform(i) - 0.5f);
    device.copy_from_host(tensor, data.data());
  });
  return tensor;
}

}  // namespace

std::vector<ResultRow> benchmark_matmul(Device& device, const MatmulBenchmark& benchmark) {
  const std::int64_t tokens = benchmark.tokens, inputs = benchmark.inputs, outputs = benchmark.outputs;
  const bool decoding = tokens <= 8;
  const bool gpu = device.is_cuda();
  LinearSpec spec{.name = "layer",
                  .inputs = inputs,
                  .outputs = outputs,
                  .dtype = benchmark.dtype,
                  .mode = decoding ? Mode::inference : Mode::training,
                  .pattern = benchmark.weights.pattern,
                  .block = benchmark.weights.block.chosen() ? benchmark.weights.block : default_block(gpu),
                  .density = benchmark.weights.density};
  const OwnedTensor matrix = random(device, DType::f32, {outputs, inputs}, "matrix");
  const OwnedTensor x = random(device, benchmark.dtype, {tokens, inputs}, "x");
  const OwnedTensor dy = random(device, benchmark.dtype, {tokens, outputs}, "dy");
  const OwnedTensor y = device.memory().tensor(Purpose::workspace, benchmark.dtype, {tokens, outputs});
  const OwnedTensor dx = device.memory().tensor(Purpose::workspace, benchmark.dtype, {tokens, inputs});

  struct Candidate {
    std::string method;
    std::unique_ptr<LinearWeight> weight;
  };
  std::vector<Candidate> candidates;
  PlanTable timed(true), untimed(false);  // untimed: sparse wherever there is a sparse kernel
  for (const std::string& method : benchmark.methods) {
    spec.method = method;
    spec.mask = default_mask(method);
    const auto add = [&](const std::string& name, PlanTable& plans) {
      candidates.push_back({name, make_linear_weight(device, spec)});
      candidates.back().weight->initialize(device, matrix, false);
      candidates.back().weight->plan(device, plans, tokens);  // after its values: an empty mask would be no work at all
    };
    const std::string name = row_method(method, benchmark.weights, gpu);
    add(name, untimed);
    if (method != "dense") add(name + "-planned", timed);
  }

  std::vector<ResultRow> rows;
  const auto measure = [&](const char* metric, const std::function<void(LinearWeight&)>& product) {
    std::vector<std::function<void()>> runs;
    for (const Candidate& candidate : candidates)
      runs.push_back([&product, &device, weight = candidate.weight.get()] {
        product(*weight);
        device.synchronize();
      });
    const std::vector<Measured> times = time_in_turn(runs, benchmark.repeats);
    for (std::size_t i = 0; i < times.size(); ++i) {
      ResultRow row;
      row.name = "matmul-" + std::to_string(inputs) + "x" + std::to_string(outputs);
      row.method = candidates[i].method;
      row.config = {
          .batch = tokens, .precision = std::string(name_of(benchmark.dtype)), .threads = config_threads(device)};
      row.metric = metric;
      row.measured = times[i];
      rows.push_back(row);
    }
  };
  measure("forward_ms", [&](LinearWeight& weight) { weight.forward(device, y, x, {}); });
  if (!decoding) {
    measure("dx_ms", [&](LinearWeight& weight) { weight.input_gradient(device, dx, dy); });
    measure("dw_ms", [&](LinearWeight& weight) { weight.weight_gradient(device, dy, x, false); });
  }
  compare_with(rows, "dense");
  return rows;
}

}  // namespace filigree
