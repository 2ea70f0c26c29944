// What whole models hold, laid out and not allocated: models that fit nowhere too.
#pragma once

#include <string>
#include <vector>

#include "benchmark/results.h"
#include "io/config.h"

namespace filigree {

struct MemoryBenchmark {
  std::string name;
  Config config;                     // resolved, vocabulary known; run.device says whose layout; its method is ignored
  std::vector<std::string> methods;  // as named_method.h reads them; "dense" first
};

// For each method rows train_memory_bytes (weights and masks, gradients, masters and moments) and infer_memory_bytes
// (weights and masks): what the allocator would hold under these purposes. Activations, caches and workspace, which
// depend on the batch, are not among them.
std::vector<ResultRow> benchmark_memory(const MemoryBenchmark& benchmark);

}  // namespace filigree
