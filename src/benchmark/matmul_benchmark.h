// The three products of one linear layer, sparse beside dense.
#pragma once

#include <vector>

#include "benchmark/results.h"
#include "core/pattern.h"

namespace filigree {

struct MatmulBenchmark {
  std::int64_t inputs = 768;
  std::int64_t outputs = 768;
  std::int64_t tokens = 4096;
  DType dtype = DType::f32;
  Pattern pattern;
  int repeats = 9;
};

// Rows forward_ms, dx_ms, dw_ms for "dense" (oneDNN on plain operands, all reordering included), "slope" (the kernels
// for compressed weights) and "slope-planned" (what the engine would choose: the faster of those kernels and the dense
// product after unpacking). tokens at most 8 give forward_ms alone: the product of decoding.
std::vector<ResultRow> benchmark_matmul(Device& device, const MatmulBenchmark& benchmark);

}  // namespace filigree
