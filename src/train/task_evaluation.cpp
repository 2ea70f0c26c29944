#include "train/task_evaluation.h"

#include <algorithm>

namespace filigree {

std::vector<EvalTask> evaluation_tasks(const EvalConfig& config, const Tokenizer* tokenizer) {
  std::vector<std::string> names = config.tasks;
  std::erase(names, "perplexity");
  if (names.empty()) return {};
  require_user(tokenizer != nullptr, "eval.tasks: the data has no tokenizer, so that the model cannot read texts");
  try {
    return load_tasks(names, config.task_data, config.task_limit);
  } catch (const UserError& error) {
    throw UserError("eval.tasks, eval.task_data: " + std::string(error.what()));
  }
}

EvalMetrics evaluation_row(const TaskResult& result, std::int64_t step) {
  EvalMetrics row{.step = step, .task = result.overall.name, .values = {}};
  const auto add = [&](const char* metric, const char* name, const char* error) {
    const MetricScore* score = result.overall.find(metric);
    if (!score) return;
    row.values.emplace_back(name, score->value);
    row.values.emplace_back(error, score->standard_error);
  };
  add("acc", "accuracy", "stderr");
  add("acc_norm", "accuracy_norm", "stderr_norm");
  add("perplexity", "perplexity", "stderr_perplexity");
  return row;
}

}  // namespace filigree
