#include "benchmark/memory_benchmark.h"

#include "benchmark/named_method.h"
#include "model/transformer.h"

namespace filigree {
namespace {

double bytes_of(const Config& config, Mode mode, bool gpu) {
  const auto device = Device::plan(gpu);
  Transformer model(*device, config, mode, false);
  if (config.adapters.rank > 0) model.insert_adapters(*device);
  const Memory& memory = device->memory();
  std::int64_t bytes = 0;
  for (const Purpose purpose :
       {Purpose::weights, Purpose::metadata, Purpose::masters, Purpose::moments, Purpose::gradients})
    bytes += memory.bytes(purpose);
  return static_cast<double>(bytes);
}

}  // namespace

std::vector<ResultRow> benchmark_memory(const MemoryBenchmark& benchmark) {
  const bool gpu = Device::means_gpu(benchmark.config.run.device);
  std::vector<ResultRow> rows;
  for (const std::string& method : benchmark.methods) {
    Config config = with_method(benchmark.config, parse_method(method).value());
    if (!config.weights.block.chosen()) config.weights.block = default_block(gpu);
    ResultRow row;
    row.name = benchmark.name;
    row.method = row_method(method, benchmark.config.weights, gpu);
    row.config = {.batch = 1,
                  .sequence = config.model.context,
                  .layers = config.model.layers,
                  .precision = std::string(name_of(config.run.precision)),
                  .vocab = config.model.vocab};
    for (const Mode mode : {Mode::training, Mode::inference}) {
      const double bytes = bytes_of(config, mode, gpu);
      row.metric = mode == Mode::training ? "train_memory_bytes" : "infer_memory_bytes";
      row.measured = {bytes, bytes, bytes};
      rows.push_back(row);
    }
  }
  compare_with(rows, "dense");
  return rows;
}

}  // namespace filigree
