// The tasks of `filigree eval`, a source file each: score, then print a table, or one JSON object.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/model_loading.h"

namespace filigree {

struct EvalOptions {
  std::string path;
  std::string task = "perplexity";
  std::vector<std::string> data;
  std::vector<std::string> overrides;
  std::string device = "auto";
  std::int64_t tokens = 0;
  // Sequences at once. A multiple of 3: short texts then share passes at lengths between the powers of two as well.
  std::int64_t batch = 12;
  bool json = false;
};

void eval_perplexity(const EvalOptions& options, Device& device, const LoadedModel& loaded);
void eval_blimp(const EvalOptions& options, Device& device, const LoadedModel& loaded);

}  // namespace filigree
