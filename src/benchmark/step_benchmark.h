// Whole training steps on random tokens: forward, backward, clipping norm, optimizer and whatever a method does after
// it. All costs are in.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "benchmark/results.h"
#include "io/config.h"

namespace filigree {

struct StepBenchmark {
  std::string name;                  // the case, e.g. "gpt2-124m"
  Config config;                     // resolved, vocabulary known; its weights.method is ignored
  std::vector<std::string> methods;  // as named_method.h reads them; "dense" first: the others stand beside it
  std::int64_t batch = 4;            // sequences of the model's context in a step
  int repeats = 5;
  std::function<void(const std::string&)> note = {};  // told what the user should know besides
};

// Rows step_ms, tokens_per_s, model_tflops (the dense model's operations, in 10^12 a second) and peak_bytes (weights to
// activations and workspace) for each method, and first_step_s, the seconds from the process's start to the end of the
// dense model's first step. A method's name in its rows is row_method's, then "-recompute-norm" with train.recompute
// and
// "-deterministic" with run.deterministic. The models take turns.
std::vector<ResultRow> benchmark_step(const StepBenchmark& benchmark);

}  // namespace filigree
