#include <gtest/gtest.h>

#include "benchmark/infer_benchmark.h"
#include "benchmark/matmul_benchmark.h"
#include "benchmark/step_benchmark.h"
#include "model/tiny_models.h"

namespace filigree {
namespace {

const ResultRow* find(const std::vector<ResultRow>& rows, const std::string& method, const std::string& metric) {
  for (const ResultRow& row : rows)
    if (row.method == method && row.metric == metric) return &row;
  return nullptr;
}

void expect_pairs(const std::vector<ResultRow>& rows, const std::vector<std::string>& metrics) {
  for (const std::string& metric : metrics) {
    const ResultRow* dense = find(rows, "dense", metric);
    ASSERT_TRUE(dense) << metric;
    for (const char* method : {"slope", "block"}) {
      const ResultRow* sparse = find(rows, method, metric);
      ASSERT_TRUE(sparse) << metric << " " << method;
      EXPECT_EQ(sparse->baseline, "dense");
      EXPECT_GT(sparse->ratio, 0.0);
    }
    EXPECT_LE(dense->measured.min, dense->measured.median);
    EXPECT_LE(dense->measured.median, dense->measured.max);
  }
}

const std::vector<std::string> kMethods = {"dense", "slope", "block"};

TEST(Benchmarks, EverySparseRowStandsBesideItsDenseOne) {
  const auto device = Device::cpu();
  expect_pairs(benchmark_matmul(*device, {.inputs = 64,
                                          .outputs = 96,
                                          .tokens = 32,
                                          .dtype = DType::f32,
                                          .methods = kMethods,
                                          .pattern = {2, 4},
                                          .repeats = 2}),
               {"forward_ms", "dx_ms", "dw_ms"});
  expect_pairs(benchmark_matmul(*device, {.inputs = 64,
                                          .outputs = 96,
                                          .tokens = 1,
                                          .dtype = DType::bf16,
                                          .methods = kMethods,
                                          .pattern = {2, 4},
                                          .repeats = 2}),
               {"forward_ms"});
  const Config config = testing::tiny_config("gpt2");
  expect_pairs(benchmark_step({.name = "tiny", .config = config, .methods = kMethods, .batch = 2, .repeats = 2}),
               {"step_ms", "tokens_per_s", "peak_bytes"});
  expect_pairs(
      benchmark_infer({.name = "tiny", .config = config, .methods = kMethods, .prompt = 8, .tokens = 4, .repeats = 2}),
      {"prefill_ms", "decode_tokens_per_s", "infer_bytes"});
  EXPECT_THROW(benchmark_infer({.name = "tiny", .config = config, .methods = {"dense"}, .prompt = 16, .tokens = 4}),
               UserError);
}

}  // namespace
}  // namespace filigree
