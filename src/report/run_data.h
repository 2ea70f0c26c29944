// A run's folder as the HTML report reads it. Reading is tolerant: what a run that died or has only begun lacks is
// absent, and a file that cannot be understood is named in `problems`, because a report is most wanted when a run went
// wrong.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "report/layer_masks.h"
#include "report/metrics.h"
#include "report/model_summary.h"

namespace filigree {

// Nested tables and objects as dotted keys ("train.lr", "weights.override[0].layers"), in the order of the file's keys.
using FlatTable = std::vector<std::pair<std::string, std::string>>;

// The value of `key`, or "".
std::string value_of(const FlatTable& table, const std::string& key);

struct TextSample {
  std::int64_t step = 0;
  std::string prompt;
  std::string text;  // the continuation; a prompt in front of it has been taken off
};

struct RunData {
  std::filesystem::path folder;
  std::string name;                      // the folder's name; longer where two runs share it
  FlatTable config;                      // config.toml
  FlatTable environment;                 // environment.json
  std::vector<StepMetrics> steps;        // metrics.jsonl
  std::vector<EvalMetrics> evaluations;  // eval.jsonl
  std::optional<ModelSummary> summary;   // inspect.json
  std::vector<LayerMask> masks;          // the newest checkpoint
  std::vector<TextSample> samples;       // samples.jsonl
  std::vector<std::string> problems;     // one sentence a file that could not be read
};

// Throws UserError when a folder is missing or is no run: it has neither config.toml nor metrics.jsonl.
std::vector<RunData> read_runs(const std::vector<std::filesystem::path>& folders);

// What the summary table says of a run; absent where the run has no such data.
struct RunFigures {
  std::string model;   // "gpt2-124m", or "gpt2" of its configuration
  std::string method;  // "dense", "slope 2:4"
  bool dense = true;
  std::int64_t steps = 0;          // done
  std::int64_t planned_steps = 0;  // 0: unknown
  std::int64_t tokens = 0;
  std::int64_t nonfinite_steps = 0;       // steps whose loss is not finite
  std::optional<double> train_loss;       // mean of the last hundredth of the steps, at least one
  std::optional<std::int64_t> eval_step;  // of the three below
  std::optional<double> val_loss;
  std::optional<double> perplexity;
  std::optional<double> bits_per_byte;
  std::optional<double> seconds;       // sum of the step times: evaluation and checkpoints are not in it
  std::optional<double> tokens_per_s;  // tokens of the timed steps / their seconds
  std::optional<double> memory_bytes;  // the sum of all purposes, without the workspace
};
RunFigures figures_of(const RunData& run);

// Seconds of training at the end of each step; a step without a time counts as 0.
std::vector<double> elapsed_seconds(const std::vector<StepMetrics>& steps);

}  // namespace filigree
