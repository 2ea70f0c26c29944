// Times the three block-sparse products of a linear layer beside the best dense product of the same shape (cuBLASLt,
// every algorithm its heuristics name tried), in one run on one GPU:
//
//   filigree_block_bench --shape 4096x14336 --density 0.5 --json docs/results/h200-block.json
//
// Shapes are INPUTSxOUTPUTS, K x N of W (N, K), as those of `filigree bench matmul`. Up to 16 --tokens are decoding:
// the forward product alone. Operands are bf16, and so are the outputs but dW, which is fp32 as in training, of both
// methods. Random data, sets of operands in turn, launches of both methods in alternating batches, medians. Beside the
// times it prints useful TFLOP/s (operations on kept blocks alone), the error against the dense product of the expanded
// matrix, and the machine's ceilings in the same run: copy bandwidth, and cuBLASLt at 8192 x 8192 x 8192.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "benchmark/named_method.h"
#include "benchmark/results.h"
#include "core/cuda_error.h"
#include "kernels/block/block_mask.h"
#include "kernels/block/block_matmul.h"
#include "kernels/block_bench_device.h"
#include "kernels/dense_cublaslt.h"

namespace filigree::bench {
namespace {

// Operands are used in turn: two sets, or, of few tokens, as many as it takes for weights to come from memory each
// time.
std::size_t sets_for(const BlockGrid& grid, std::int64_t tokens) {
  constexpr std::int64_t kDecodedBytes = std::int64_t{1} << 29;  // ten times an H200's L2 cache
  const std::int64_t bytes = grid.rows * grid.columns * 2;
  return tokens > kDecodeTokens ? 2 : static_cast<std::size_t>(2 + kDecodedBytes / bytes);
}

class GpuMemory {
 public:
  GpuMemory() = default;
  explicit GpuMemory(std::size_t bytes) { check(cudaMalloc(&data_, std::max<std::size_t>(bytes, 16))); }
  GpuMemory(GpuMemory&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  GpuMemory& operator=(GpuMemory&& other) noexcept {
    std::swap(data_, other.data_);
    return *this;
  }
  ~GpuMemory() { cudaFree(data_); }
  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

GpuMemory random_memory(std::int64_t count, std::uint32_t seed) {
  GpuMemory memory(static_cast<std::size_t>(count) * 2);
  fill_random(memory.data(), count, seed, nullptr);
  return memory;
}

template <typename T>
GpuMemory upload(const std::vector<T>& values) {
  GpuMemory memory(values.size() * sizeof(T));
  check(cudaMemcpy(memory.data(), values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  return memory;
}

struct Times {
  std::vector<float> milliseconds;

  double at(double share) const {
    std::vector<float> sorted = milliseconds;
    std::sort(sorted.begin(), sorted.end());
    return sorted[static_cast<std::size_t>(share * static_cast<double>(sorted.size() - 1))];
  }
  double median() const { return at(0.5); }
  Measured measured() const { return {median(), at(0.0), at(1.0)}; }
};

class Event {
 public:
  Event() { check(cudaEventCreate(&event_)); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record() { check(cudaEventRecord(event_, nullptr)); }
  void wait() { check(cudaEventSynchronize(event_)); }
  float since(const Event& begin) const {
    float milliseconds = 0.0f;
    check(cudaEventElapsedTime(&milliseconds, begin.event_, event_));
    return milliseconds;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

// Launches for about `milliseconds` and times each launch by events; the first quarter, in which the clock settles,
// does not count. `launch` gets the number of the set of operands to use.
template <typename Launch>
void time_batch(Times& times, double milliseconds, std::size_t sets, Launch&& launch) {
  Event begin, end;
  launch(0);
  begin.record();
  for (std::size_t i = 0; i < 2; ++i) launch(i % sets);
  end.record();
  end.wait();
  const auto launches = static_cast<std::size_t>(std::clamp(milliseconds / (end.since(begin) / 2.0), 8.0, 4000.0));
  std::vector<Event> events(launches + 1);
  events[0].record();
  for (std::size_t i = 0; i < launches; ++i) {
    launch(i % sets);
    events[i + 1].record();
  }
  events.back().wait();
  for (std::size_t i = launches / 4; i < launches; ++i) times.milliseconds.push_back(events[i + 1].since(events[i]));
}

struct Options {
  std::vector<std::string> shapes = {"4096x4096", "4096x14336", "14336x4096", "5120x5120", "5120x20480", "20480x5120"};
  std::vector<double> densities = {0.5};
  std::int64_t tokens = 16384;
  int rounds = 5;
  double batch_ms = 100.0;  // long enough for the clock to settle at what the power limit allows
  std::string json;
};

constexpr std::array<const char*, 3> kProducts = {"forward", "input gradient", "weight gradient"};

ResultRow result_row(const std::string& name, const std::string& method, std::int64_t batch, const std::string& metric,
                     const Measured& measured) {
  ResultRow row;
  row.name = name;
  row.method = method;
  row.config.batch = batch;
  row.config.precision = "bf16";
  row.metric = metric;
  row.measured = measured;
  return row;
}

constexpr std::array<const char*, 3> kMetrics = {"forward_ms", "dx_ms", "dw_ms"};

// One layer: a block matrix, its lists, and operands for all products.
struct Layer {
  BlockGrid grid;
  std::int64_t tokens;
  BlockLists host;
  GpuMemory row_start, row_entries, column_start, column_entries, gradient_tiles;
  DeviceBlockLists lists;
  std::vector<GpuMemory> x, dy, weight, values, out_tokens, out_weight;
  GpuMemory workspace;

  Layer(const BlockGrid& grid_, std::int64_t tokens_, double density)
      : grid(grid_),
        tokens(tokens_),
        host(make_block_lists(grid, balanced_block_mask(grid, density, 1, 0))),
        row_start(upload(host.row_start)),
        row_entries(upload(host.row_entries)),
        column_start(upload(host.column_start)),
        column_entries(upload(host.column_entries)),
        gradient_tiles(upload(host.gradient_tiles)) {
    lists = {.row_start = static_cast<const std::int32_t*>(row_start.data()),
             .row_entries = static_cast<const BlockEntry*>(row_entries.data()),
             .column_start = static_cast<const std::int32_t*>(column_start.data()),
             .column_entries = static_cast<const BlockEntry*>(column_entries.data()),
             .gradient_tiles = static_cast<const BlockGradientTile*>(gradient_tiles.data()),
             .blocks = host.blocks(),
             .gradient_tile_count = static_cast<std::int64_t>(host.gradient_tiles.size())};
    const std::int64_t wide = std::max(grid.rows, grid.columns);
    for (std::vector<GpuMemory>* operand : {&x, &dy, &weight, &values, &out_tokens, &out_weight})
      operand->resize(sets_for(grid, tokens));
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto seed = static_cast<std::uint32_t>(10 * i);
      x[i] = random_memory(tokens * grid.columns, seed + 1);
      dy[i] = random_memory(tokens * grid.rows, seed + 2);
      weight[i] = random_memory(grid.rows * grid.columns, seed + 3);
      values[i] = GpuMemory(static_cast<std::size_t>(elements()) * 2);
      gather_blocks(values[i].data(), weight[i].data(), DType::bf16, grid, lists, nullptr);
      out_tokens[i] = random_memory(tokens * wide, seed + 4);
      out_weight[i] =
          GpuMemory(static_cast<std::size_t>(std::max(grid.rows * grid.columns, elements())) * sizeof(float));
    }
  }

  std::int64_t elements() const { return lists.blocks * grid.block_elements(); }  // of the kept blocks

  DenseOperands dense(Product product, std::size_t set, const void* with_weight) const {
    switch (product) {
      case Product::forward:
        return {out_tokens[set].data(), x[set].data(), with_weight};
      case Product::input_gradient:
        return {out_tokens[set].data(), dy[set].data(), with_weight};
      case Product::weight_gradient:
        break;
    }
    return {out_weight[set].data(), dy[set].data(), x[set].data()};
  }
  DenseOperands dense(Product product, std::size_t set) const { return dense(product, set, weight[set].data()); }

  BlockPlan plan(Product product, const BlockGpu& gpu) {
    switch (product) {
      case Product::forward:
        return plan_block_forward(grid, tokens, gpu);
      case Product::input_gradient:
        return plan_block_input_gradient(grid, tokens, gpu);
      case Product::weight_gradient:
        break;
    }
    const BlockPlan made = plan_block_weight_gradient(grid, lists.gradient_tile_count, tokens, gpu);
    workspace = GpuMemory(made.workspace_bytes);
    return made;
  }
  void run(Product product, const BlockPlan& with, std::size_t set, void* out) const {
    switch (product) {
      case Product::forward:
        return block_forward({.y = out,
                              .x = x[set].data(),
                              .values = values[set].data(),
                              .tokens = tokens,
                              .grid = grid,
                              .lists = lists},
                             with, nullptr);
      case Product::input_gradient:
        return block_input_gradient({.dx = out,
                                     .dy = dy[set].data(),
                                     .values = values[set].data(),
                                     .tokens = tokens,
                                     .grid = grid,
                                     .lists = lists},
                                    with, nullptr);
      case Product::weight_gradient:
        return block_weight_gradient({.gradient = out,
                                      .dy = dy[set].data(),
                                      .x = x[set].data(),
                                      .workspace = workspace.data(),
                                      .gradient_type = DType::f32,
                                      .tokens = tokens,
                                      .grid = grid,
                                      .lists = lists},
                                     with, nullptr);
    }
  }
  void run(Product product, const BlockPlan& with, std::size_t set) const {
    run(product, with, set, (product == Product::weight_gradient ? out_weight : out_tokens)[set].data());
  }

  // Against the dense product of the expanded matrix.
  double error(Product product, const BlockPlan& with, const DenseProduct& dense_product) {
    const bool gradient = product == Product::weight_gradient;
    const GpuMemory expanded(static_cast<std::size_t>(grid.rows * grid.columns) * 2);
    expand_blocks(expanded.data(), values[0].data(), grid, lists, nullptr);
    const std::int64_t count =
        gradient ? elements() : tokens * (product == Product::forward ? grid.rows : grid.columns);
    const DType dtype = gradient ? DType::f32 : DType::bf16;
    const std::size_t bytes = static_cast<std::size_t>(count) * size_of(dtype);
    const GpuMemory found(bytes), kept(gradient ? bytes : 0);
    check(cudaMemset(found.data(), 0xff, bytes));
    dense_product.run(dense(product, 0, expanded.data()), nullptr);
    run(product, with, 0, found.data());
    if (gradient) gather_blocks(kept.data(), out_weight[0].data(), dtype, grid, lists, nullptr);
    return relative_error(found.data(), gradient ? kept.data() : out_tokens[0].data(), dtype, count, nullptr);
  }
};

double copy_bandwidth() {
  const std::size_t bytes = std::size_t{4} << 30;
  const GpuMemory from(bytes), to(bytes);
  Times times;
  time_batch(times, 30.0, 1,
             [&](std::size_t) { check(cudaMemcpyAsync(to.data(), from.data(), bytes, cudaMemcpyDeviceToDevice)); });
  return 2.0 * static_cast<double>(bytes) / times.median() * 1e-9;
}

double dense_ceiling() {
  const std::int64_t n = 8192;
  const GpuMemory a = random_memory(n * n, 1), b = random_memory(n * n, 2), c = random_memory(n * n, 3);
  const DenseOperands operands{c.data(), a.data(), b.data()};
  const DenseProduct product(Product::forward, n, n, n, operands, nullptr);
  Times times;
  time_batch(times, 100.0, 1, [&](std::size_t) { product.run(operands, nullptr); });
  return 2.0 * static_cast<double>(n * n * n) / times.median() * 1e-9;
}

void run(const Options& options, const std::string& command) {
  check_results_file(options.json);
  const BlockGpu gpu = block_gpu();
  cudaDeviceProp properties{};
  int driver = 0, runtime = 0;
  check(cudaGetDeviceProperties(&properties, 0));
  check(cudaDriverGetVersion(&driver));
  check(cudaRuntimeGetVersion(&runtime));
  const std::string blas = std::to_string(cublaslt_version());
  const ResultContext context{
      .device = properties.name,
      .command = command,
      .driver = fmt::format("CUDA {}.{}", driver / 1000, driver % 1000 / 10),
      .libraries = {{"CUDA runtime", fmt::format("{}.{}", runtime / 1000, runtime % 1000 / 10)}, {"cuBLASLt", blas}}};
  std::vector<ResultRow> rows;
  const double bandwidth = copy_bandwidth(), ceiling = dense_ceiling();
  fmt::print("{}, {}, cuBLASLt {}: copy {:.2f} TB/s, cuBLASLt 8192^3 {:.0f} TFLOP/s\n", context.device, context.driver,
             blas, bandwidth, ceiling);
  rows.push_back(result_row("copy-4GiB", "copy", 1, "tb_per_s", {bandwidth, bandwidth, bandwidth}));
  rows.push_back(result_row("linear-8192x8192", "cublaslt", 8192, "tflops", {ceiling, ceiling, ceiling}));
  fmt::print("{:>13} {:>15} {:>5} | {:>9} {:>7} | {:>9} {:>7} {:>6} {:>7} | {:>7} | {:>9}\n", "inputs x out.",
             "product", "dens", "dense ms", "TFLOP/s", "block ms", "TFLOP/s", "spread", "ceiling", "ratio", "error");
  for (const std::string& shape : options.shapes) {
    const auto cross = shape.find('x');
    if (cross == std::string::npos) throw UserError("--shape takes INPUTSxOUTPUTS, e.g. 4096x14336; found " + shape);
    const BlockGrid grid{.rows = std::stoll(shape.substr(cross + 1)), .columns = std::stoll(shape.substr(0, cross))};
    for (const double density : options.densities) {
      Layer layer(grid, options.tokens, density);
      WeightsConfig weights;
      weights.density = density;
      const std::string method = row_method("block", weights, true);
      for (const Product product : {Product::forward, Product::input_gradient, Product::weight_gradient}) {
        if (options.tokens <= kDecodeTokens && product != Product::forward) continue;  // decoding
        const DenseProduct dense(product, options.tokens, grid.rows, grid.columns, layer.dense(product, 0), nullptr);
        const BlockPlan plan = layer.plan(product, gpu);
        const double error = layer.error(product, plan, dense);
        Times dense_times, block_times;
        for (int round = 0; round < options.rounds; ++round) {
          time_batch(dense_times, options.batch_ms, layer.x.size(),
                     [&](std::size_t set) { dense.run(layer.dense(product, set), nullptr); });
          time_batch(block_times, options.batch_ms, layer.x.size(),
                     [&](std::size_t set) { layer.run(product, plan, set); });
        }
        const double operations = 2e-9 * static_cast<double>(options.tokens) * static_cast<double>(grid.rows) *
                                  static_cast<double>(grid.columns);
        const double kept = static_cast<double>(grid.block_rows() * grid.block_columns());
        const double useful = operations * static_cast<double>(layer.lists.blocks) / kept;
        const double ratio = dense_times.median() / block_times.median();
        const char* name = kProducts[static_cast<std::size_t>(product)];
        fmt::print(
            "{:>13} {:>15} {:>5} | {:>9.4f} {:>7.0f} | {:>9.4f} {:>7.0f} {:>5.1f}% {:>6.0f}% | {:>6.3f}x | {:>9.2e}\n",
            shape, name, density, dense_times.median(), operations / dense_times.median(), block_times.median(),
            useful / block_times.median(), 100 * (block_times.at(0.9) - block_times.at(0.1)) / block_times.median(),
            100 * useful / block_times.median() / ceiling, ratio, error);
        std::fflush(stdout);
        if (!(error < 1e-2)) throw Error("the block product differs from the dense product of the same matrix");
        const std::string metric = kMetrics[static_cast<std::size_t>(product)];
        rows.push_back(result_row("linear-" + shape, "cublaslt", options.tokens, metric, dense_times.measured()));
        rows.push_back(result_row("linear-" + shape, method, options.tokens, metric, block_times.measured()));
      }
    }
  }
  compare_with(rows, "cublaslt");
  if (!options.json.empty()) write_results(options.json, context, rows);
}

}  // namespace
}  // namespace filigree::bench

int main(int argc, char** argv) {
  filigree::bench::Options options;
  CLI::App app("Block-sparse products beside dense ones");
  app.add_option("--shape", options.shapes, "INPUTSxOUTPUTS of the weight, e.g. 4096x14336; several");
  app.add_option("--density", options.densities, "kept share of the blocks; several");
  app.add_option("--tokens", options.tokens, "T");
  app.add_option("--rounds", options.rounds, "alternating batches of each method");
  app.add_option("--batch-ms", options.batch_ms, "length of a batch");
  app.add_option("--json", options.json, "file to write or extend");
  CLI11_PARSE(app, argc, argv);
  std::string command = "filigree_block_bench";  // for the results: without where they go
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--json") {
      ++i;
    } else {
      command += std::string(" ") + argv[i];
    }
  }
  try {
    filigree::bench::run(options, command);
  } catch (const filigree::Error& error) {
    fmt::print(stderr, "filigree_block_bench: {}\n", error.what());
    return 1;
  }
  return 0;
}
