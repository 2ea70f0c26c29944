// Reading a prompt and decoding, token by token, with a key-value cache.
#pragma once

#include <string>
#include <vector>

#include "benchmark/results.h"
#include "io/config.h"

namespace filigree {

struct InferBenchmark {
  std::string name;
  Config config;                     // resolved, vocabulary known; its weights.method is ignored
  std::vector<std::string> methods;  // as named_method.h reads them; "dense" first
  std::int64_t batch = 1;            // sequences that are read, and decoded, at once
  std::int64_t prompt = 128;         // tokens of a sequence; together with `tokens` at most the context
  std::int64_t tokens = 16;          // decoded of a sequence in a repeat
  int repeats = 5;
};

// Rows prefill_ms (of all prompts), decode_tokens_per_s (of all sequences), infer_bytes (weights and masks) for each
// method; the models take turns. Values are random: speed does not depend on them.
std::vector<ResultRow> benchmark_infer(const InferBenchmark& benchmark);

}  // namespace filigree
