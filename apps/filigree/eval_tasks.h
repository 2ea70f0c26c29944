// What `filigree eval` does with its options.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "eval/perplexity.h"
#include "train/model_loading.h"

namespace filigree {

struct EvalOptions {
  std::string path;
  std::vector<std::string> tasks = {"perplexity"};
  std::vector<std::string> task_data;
  std::vector<std::string> data;
  std::vector<std::string> overrides;
  std::string device = "auto";
  std::int64_t tokens = 0;
  std::int64_t limit = 0;
  // Sequences at once. A multiple of 3: short texts then share passes at lengths between the powers of two as well.
  std::int64_t batch = 12;
  bool json = false;
};

struct PerplexityResult {
  Perplexity score;
  double unigram_entropy = 0.0;  // 0: unknown
};
// The run's validation data, or that of --data.
PerplexityResult eval_perplexity(const EvalOptions& options, Device& device, const LoadedModel& loaded,
                                 Activations& activations);

}  // namespace filigree
