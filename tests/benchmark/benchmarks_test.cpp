#include <gtest/gtest.h>

#include "benchmark/infer_benchmark.h"
#include "benchmark/matmul_benchmark.h"
#include "benchmark/memory_benchmark.h"
#include "benchmark/named_method.h"
#include "benchmark/step_benchmark.h"
#include "model/tiny_models.h"

namespace filigree {
namespace {

const ResultRow* find(const std::vector<ResultRow>& rows, const std::string& method, const std::string& metric) {
  for (const ResultRow& row : rows)
    if (row.method == method && row.metric == metric) return &row;
  return nullptr;
}

// Each of these metrics has a row of the dense model and of both sparse ones, which stand beside it; `more` are other
// methods' names. Metrics of bytes are smaller for what is sparse.
void expect_pairs(const std::vector<ResultRow>& rows, const std::vector<std::string>& metrics,
                  const std::vector<std::string>& more = {}) {
  for (const std::string& metric : metrics) {
    const ResultRow* dense = find(rows, "dense", metric);
    ASSERT_TRUE(dense) << metric;
    EXPECT_EQ(dense->baseline, "");
    std::vector<std::string> methods = {"slope", "block"};
    methods.insert(methods.end(), more.begin(), more.end());
    for (const std::string& method : methods) {
      const ResultRow* sparse = find(rows, method, metric);
      ASSERT_TRUE(sparse) << metric << " " << method;
      EXPECT_EQ(sparse->baseline, "dense");
      const double quotient = sparse->measured.median / dense->measured.median;
      EXPECT_DOUBLE_EQ(sparse->ratio, metric.ends_with("_ms") ? 1.0 / quotient : quotient) << metric << " " << method;
      if (metric.ends_with("_bytes")) {
        EXPECT_LT(sparse->ratio, 1.0) << metric << " " << method;
      }
    }
    EXPECT_LE(dense->measured.min, dense->measured.median);
    EXPECT_LE(dense->measured.median, dense->measured.max);
  }
}

const std::vector<std::string> kMethods = {"dense", "slope", "block"};

TEST(Benchmarks, EverySparseRowStandsBesideItsDenseOne) {
  const auto device = Device::cpu();
  expect_pairs(
      benchmark_matmul(
          *device, {.inputs = 64, .outputs = 96, .tokens = 32, .dtype = DType::f32, .methods = kMethods, .repeats = 2}),
      {"forward_ms", "dx_ms", "dw_ms"}, {"slope-planned", "block-planned"});
  expect_pairs(
      benchmark_matmul(
          *device, {.inputs = 64, .outputs = 96, .tokens = 1, .dtype = DType::bf16, .methods = kMethods, .repeats = 2}),
      {"forward_ms"});
  const Config config = testing::tiny_config("gpt2");
  const std::vector<ResultRow> adapters = benchmark_step(
      {.name = "tiny", .config = config, .methods = {"dense", "slope", "slope-r25"}, .batch = 2, .repeats = 2});
  const auto bytes = [&](const std::string& method) {
    for (const ResultRow& row : adapters)
      if (row.method == method && row.metric == "peak_bytes") return row.measured.median;
    return 0.0;
  };
  EXPECT_GT(bytes("slope-r25"), bytes("slope")) << "rank 8 of width 32";
  expect_pairs(benchmark_step({.name = "tiny", .config = config, .methods = kMethods, .batch = 2, .repeats = 2}),
               {"step_ms", "tokens_per_s", "peak_bytes"});
  expect_pairs(
      benchmark_infer(
          {.name = "tiny", .config = config, .methods = kMethods, .batch = 2, .prompt = 8, .tokens = 4, .repeats = 2}),
      {"prefill_ms", "decode_tokens_per_s", "infer_bytes"});
  EXPECT_THROW(benchmark_infer({.name = "tiny", .config = config, .methods = {"dense"}, .prompt = 16, .tokens = 4}),
               UserError);
}

// By hand, a layer of N x K: dense 2 values, 4 gradient, 4 master, 8 moments; SLoPe half of each, W^{R,C}'s values
// again, and a bit a weight for either mask.
TEST(Benchmarks, MemoryIsWhatALayoutHolds) {
  Config config = testing::tiny_config("gpt2");
  config.run.precision = DType::bf16;
  config.run.device = "cpu";
  config.model.width = 64;
  config.model.ffn = 256;
  const auto bytes = [&](const std::string& method, const std::string& metric) {
    for (const ResultRow& row :
         benchmark_memory({.name = "tiny", .config = config, .methods = {"dense", "slope", "block"}}))
      if (row.method == method && row.metric == metric) return row.measured.median;
    return 0.0;
  };
  // All layers but the first attention projection and the head.
  const double sparse = static_cast<double>(config.model.layers) * 12 * 64 * 64 - 3 * 64 * 64;
  const auto saved = [&](const char* method, const char* metric) {
    return bytes("dense", metric) - bytes(method, metric);
  };
  EXPECT_EQ(saved("slope", "train_memory_bytes"), sparse * (18 - 10.25));
  EXPECT_EQ(saved("slope", "infer_memory_bytes"), sparse * (2 - 1.125));
  const double blocks = sparse / 2 / (16 * 16);
  EXPECT_NEAR(saved("block", "infer_memory_bytes"), sparse, 40 * blocks) << "lists and masks";
  config.run.device = "cuda";
  EXPECT_EQ(saved("slope", "train_memory_bytes"), sparse * (18 - 10.5)) << "cuSPARSELt's metadata";
}

TEST(Benchmarks, RowsAreNamedByTheirSettings) {
  WeightsConfig weights;
  EXPECT_EQ(row_method("slope-r1.56", weights, false), "slope-r1.56");
  EXPECT_EQ(row_method("block", weights, true), "block");
  weights.pattern = {1, 4};
  weights.block = {16, 16};
  weights.density = 0.25;
  EXPECT_EQ(row_method("dense", weights, false), "dense");
  EXPECT_EQ(row_method("slope-r1.56", weights, false), "slope-r1.56-1:4");
  EXPECT_EQ(row_method("block", weights, false), "block-d0.25");
  EXPECT_EQ(row_method("block", weights, true), "block-16x16-d0.25");

  const auto device = Device::cpu(1);
  weights.block = {8, 8};
  const auto rows = benchmark_matmul(
      *device,
      {.inputs = 64, .outputs = 64, .tokens = 1, .methods = {"dense", "block"}, .weights = weights, .repeats = 1});
  EXPECT_TRUE(find(rows, "block-8x8-d0.25-planned", "forward_ms"));
  EXPECT_EQ(rows.front().config.threads, 1);
  Config config = testing::tiny_config("gpt2");
  config.train.recompute = "norm";
  config.run.deterministic = true;
  config.weights.pattern = {1, 4};
  const auto steps =
      benchmark_step({.name = "tiny", .config = config, .methods = {"dense", "slope"}, .batch = 1, .repeats = 1});
  const ResultRow* sparse = find(steps, "slope-1:4-recompute-norm-deterministic", "step_ms");
  ASSERT_TRUE(sparse);
  EXPECT_EQ(sparse->baseline, "dense-recompute-norm-deterministic");
  EXPECT_EQ(sparse->config.vocab, config.model.vocab);
}

TEST(Benchmarks, MethodsAreNamedWithTheirAdapters) {
  EXPECT_EQ(parse_method("slope")->adapter_percent, 0.0);
  EXPECT_EQ(parse_method("block-r6.25")->adapter_percent, 6.25);
  EXPECT_EQ(parse_method("block-r6.25")->weights, "block");
  for (const char* wrong : {"", "mest", "dense-r1", "slope-r", "slope-r0", "slope-r101", "slope-r1x", "slope-rnan"})
    EXPECT_FALSE(parse_method(wrong).has_value()) << wrong;
  Config config = testing::tiny_config("gpt2");
  EXPECT_EQ(with_method(config, *parse_method("slope-r0.01")).adapters.rank, 1);
  EXPECT_EQ(with_method(config, *parse_method("slope-r25")).adapters.rank, 8);
}

}  // namespace
}  // namespace filigree
