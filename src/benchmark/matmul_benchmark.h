// The three products of one linear layer, sparse beside dense.
#pragma once

#include <string>
#include <vector>

#include "benchmark/results.h"
#include "io/config.h"

namespace filigree {

struct MatmulBenchmark {
  std::int64_t inputs = 768;
  std::int64_t outputs = 768;
  std::int64_t tokens = 4096;
  DType dtype = DType::f32;
  std::vector<std::string> methods = {"dense", "slope"};  // "dense" first: the others stand beside it
  WeightsConfig weights = {};                             // pattern, block and density
  int repeats = 9;
};

// Rows forward_ms, dx_ms, dw_ms for "dense" (the engine's dense product on plain operands, all reordering included),
// each other method (its kernels for compressed weights; named by row_method) and the same with "-planned" (what the
// engine would choose: the faster of those kernels and the dense product after unpacking). tokens at most 8 give
// forward_ms alone: the product of decoding.
std::vector<ResultRow> benchmark_matmul(Device& device, const MatmulBenchmark& benchmark);

}  // namespace filigree
