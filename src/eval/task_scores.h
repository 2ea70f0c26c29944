// Scores of a model on evaluation tasks, by the rules of lm-evaluation-harness.
#pragma once

#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "eval/log_likelihood.h"
#include "eval/task.h"
#include "model/transformer.h"
#include "text/tokenizer.h"

namespace filigree {

// acc, acc_norm (the log-probability divided by the choice's length in characters), acc_bytes (in bytes), perplexity.
// The standard error is the sample's: NaN for one item.
struct MetricScore {
  std::string name;
  double value = 0.0;
  double standard_error = std::numeric_limits<double>::quiet_NaN();
};

struct TaskScore {
  std::string name;
  std::int64_t items = 0;
  std::vector<MetricScore> metrics;

  const MetricScore* find(std::string_view metric) const;
};

struct TaskResult {
  TaskScore overall;
  std::vector<TaskScore> groups;                  // of a task that has them, in the order of their names
  std::vector<TaskScore> sets;                    // of a task that has more than one
  std::vector<std::vector<std::string>> members;  // the sets of each group
  std::string version;
  std::int64_t shortened = 0;  // texts that the model's context does not hold: they lose their beginning
};

// The tokens of a request: the continuation's are those of the whole text behind those of the context, so that no token
// is cut; white space at the context's end belongs to the continuation. An empty context is an end-of-text.
Continuation encode_request(const Tokenizer& tokenizer, const TaskRequest& request);

// All tasks in one go: texts of all of them share passes. As log_likelihoods says of progress.
std::vector<TaskResult> score_tasks(Device& device, Transformer& model, Activations& activations,
                                    const Tokenizer& tokenizer, std::span<const EvalTask> tasks,
                                    const std::function<void(std::int64_t done, std::int64_t total)>& progress = {});

// From the likelihoods of the task's requests, in order: the part of it that needs no model.
TaskResult score_task(const EvalTask& task, std::span<const Likelihood> likelihoods);

}  // namespace filigree
