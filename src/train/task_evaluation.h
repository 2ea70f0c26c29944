// The tasks of eval.tasks, read once and scored at each evaluation of a run.
#pragma once

#include <vector>

#include "eval/task_scores.h"
#include "io/config.h"
#include "report/metrics.h"

namespace filigree {

// Throws UserError naming the key. perplexity, which every run has, may be named and is left out.
std::vector<EvalTask> evaluation_tasks(const EvalConfig& config, const Tokenizer* tokenizer);

// A row of eval.jsonl: accuracy with stderr, accuracy_norm with stderr_norm, perplexity, as the task has them.
EvalMetrics evaluation_row(const TaskResult& result, std::int64_t step);

}  // namespace filigree
