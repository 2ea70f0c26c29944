#include "benchmark/matmul_benchmark.h"

#include "benchmark/timing.h"
#include "core/hash.h"
#include "core/random.h"
#include "sparsity/dense_weight.h"
#include "sparsity/slope_weight.h"

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
  LinearSpec spec{.name = "layer",
                  .inputs = inputs,
                  .outputs = outputs,
                  .dtype = benchmark.dtype,
                  .mode = decoding ? Mode::inference : Mode::training,
                  .method = "slope",
                  .pattern = benchmark.pattern};
  const OwnedTensor matrix = random(device, DType::f32, {outputs, inputs}, "matrix");
  const OwnedTensor x = random(device, benchmark.dtype, {tokens, inputs}, "x");
  const OwnedTensor dy = random(device, benchmark.dtype, {tokens, outputs}, "dy");
  const OwnedTensor y = device.memory().tensor(Purpose::workspace, benchmark.dtype, {tokens, outputs});
  const OwnedTensor dx = device.memory().tensor(Purpose::workspace, benchmark.dtype, {tokens, inputs});

  SlopeWeight sparse(device, spec), planned(device, spec);
  spec.method = "dense";
  DenseWeight dense(device, spec);
  struct Candidate {
    const char* method;
    LinearWeight* weight;
  };
  const Candidate candidates[] = {{"dense", &dense}, {"slope", &sparse}, {"slope-planned", &planned}};
  for (const Candidate& candidate : candidates) candidate.weight->initialize(device, matrix, false);
  PlanTable plans(true);
  planned.plan(device, plans, tokens);  // with its values in place: an empty mask would be no work at all
  PlanTable untimed(false);
  sparse.plan(device, untimed, tokens);  // sparse wherever there is a sparse kernel

  std::vector<ResultRow> rows;
  const auto measure = [&](const char* metric, const std::function<void(LinearWeight&)>& product) {
    std::vector<std::function<void()>> runs;
    for (const Candidate& candidate : candidates)
      runs.push_back([&product, &device, weight = candidate.weight] {
        product(*weight);
        device.synchronize();
      });
    const std::vector<Measured> times = time_in_turn(runs, benchmark.repeats);
    for (std::size_t i = 0; i < times.size(); ++i) {
      ResultRow row;
      row.name = "matmul-" + std::to_string(inputs) + "x" + std::to_string(outputs);
      row.method = candidates[i].method;
      row.config = {.batch = tokens, .precision = std::string(name_of(benchmark.dtype))};
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
