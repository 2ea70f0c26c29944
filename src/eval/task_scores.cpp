#include "eval/task_scores.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "eval/task_text.h"

namespace filigree {
namespace {

struct Mean {
  double value = 0.0, standard_error = std::numeric_limits<double>::quiet_NaN();
};

Mean mean_of(const std::vector<double>& values) {
  const auto count = static_cast<double>(values.size());
  Mean mean;
  for (const double value : values) mean.value += value;
  mean.value /= count;
  if (values.size() < 2) return mean;
  double squares = 0.0;
  for (const double value : values) squares += (value - mean.value) * (value - mean.value);
  mean.standard_error = std::sqrt(squares / (count - 1.0) / count);
  return mean;
}

// The first of the largest, as numpy's argmax.
std::int64_t largest(const std::vector<double>& values) {
  return std::max_element(values.begin(), values.end()) - values.begin();
}

std::vector<double> divided(const std::vector<double>& logs, const std::vector<std::string>& choices,
                            std::int64_t (*length)(std::string_view)) {
  std::vector<double> result;
  for (std::size_t i = 0; i < logs.size(); ++i) result.push_back(logs[i] / static_cast<double>(length(choices[i])));
  return result;
}
std::int64_t count_bytes(std::string_view text) {
  return static_cast<std::int64_t>(text.size());
}

TaskScore score_set(const EvalTask& task, const TaskSet& set, std::span<const Likelihood> likelihoods) {
  std::vector<double> right, right_norm, right_bytes, logs;
  std::size_t next = 0;
  for (const TaskItem& item : set.items) {
    const std::span<const Likelihood> of_item = likelihoods.subspan(next, item.requests.size());
    next += item.requests.size();
    if (task.kind == TaskKind::continuation) {
      logs.push_back(of_item.front().log);
      right.push_back(of_item.front().greedy ? 1.0 : 0.0);
      continue;
    }
    std::vector<double> values;
    for (const Likelihood& each : of_item) values.push_back(each.log);
    const auto rightness = [&](const std::vector<double>& of) { return largest(of) == item.gold ? 1.0 : 0.0; };
    right.push_back(rightness(values));
    if (!task.normalized) continue;
    right_norm.push_back(rightness(divided(values, item.choices, count_characters)));
    right_bytes.push_back(rightness(divided(values, item.choices, count_bytes)));
  }
  TaskScore score{.name = set.name, .items = static_cast<std::int64_t>(set.items.size()), .metrics = {}};
  const auto add = [&](const char* name, const std::vector<double>& values) {
    const Mean mean = mean_of(values);
    score.metrics.push_back({name, mean.value, mean.standard_error});
  };
  if (task.kind == TaskKind::continuation) {
    const Mean mean = mean_of(logs);
    const double perplexity = std::exp(-mean.value);
    // The harness draws samples for this one; the first order of the exponential agrees with them for many items.
    score.metrics.push_back({"perplexity", perplexity, perplexity * mean.standard_error});
  }
  add("acc", right);
  if (task.normalized) {
    add("acc_norm", right_norm);
    add("acc_bytes", right_bytes);
  }
  return score;
}

// Mean of sets, all of one size or weighted by it.
TaskScore combined(const std::string& name, const std::vector<const TaskScore*>& sets, bool weighted) {
  TaskScore result{.name = name, .items = 0, .metrics = {}};
  for (const TaskScore* set : sets) result.items += set->items;
  const auto parts = static_cast<double>(sets.size()), items = static_cast<double>(result.items);
  for (std::size_t m = 0; m < sets.front()->metrics.size(); ++m) {
    double value = 0.0, squares = 0.0;
    for (const TaskScore* set : sets) {
      const MetricScore& metric = set->metrics[m];
      const auto size = static_cast<double>(set->items);
      const double variance = metric.standard_error * metric.standard_error;
      value += metric.value * (weighted ? size / items : 1.0 / parts);
      squares += weighted ? (size - 1.0) * variance * size : variance;  // the former: pooled variance
    }
    const double error = weighted ? std::sqrt(squares / (items - parts) / items) : std::sqrt(squares) / parts;
    result.metrics.push_back({sets.front()->metrics[m].name, value, error});
  }
  return result;
}

}  // namespace

const MetricScore* TaskScore::find(std::string_view metric) const {
  for (const MetricScore& each : metrics)
    if (each.name == metric) return &each;
  return nullptr;
}

Continuation encode_request(const Tokenizer& tokenizer, const TaskRequest& request) {
  Continuation result;
  if (request.context.empty()) {
    result.ids = tokenizer.encode(request.continuation);
    result.ids.insert(result.ids.begin(), tokenizer.end_of_text());
  } else {
    const std::string context = strip_right(request.context);
    result.ids = tokenizer.encode(request.context + request.continuation);
    if (!context.empty()) result.first = static_cast<std::int64_t>(tokenizer.encode(context).size());
  }
  const auto size = static_cast<std::int64_t>(result.ids.size());
  // Where the tokens of the whole text are no more than the context's, its last one is the continuation.
  if (size == 1) result.ids.insert(result.ids.begin(), tokenizer.end_of_text());
  result.first = std::clamp<std::int64_t>(result.first, 1, std::max<std::int64_t>(size - 1, 1));
  return result;
}

TaskResult score_task(const EvalTask& task, std::span<const Likelihood> likelihoods) {
  TaskResult result;
  result.version = task.version;
  std::vector<TaskScore> scores;
  std::size_t next = 0;
  for (const TaskSet& set : task.sets) {
    scores.push_back(score_set(task, set, likelihoods.subspan(next)));
    for (const TaskItem& item : set.items) next += item.requests.size();
  }
  if (task.sets.size() == 1 && task.sets.front().group.empty()) {
    result.overall = std::move(scores.front());
    return result;
  }
  result.sets = std::move(scores);
  std::map<std::string, std::vector<const TaskScore*>> groups;
  std::vector<const TaskScore*> all;
  for (std::size_t i = 0; i < task.sets.size(); ++i) {
    groups[task.sets[i].group].push_back(&result.sets[i]);
    all.push_back(&result.sets[i]);
  }
  for (const auto& [name, members] : groups) {
    result.groups.push_back(combined(name, members, task.weighted));
    std::vector<std::string>& names = result.members.emplace_back();
    for (const TaskScore* member : members) names.push_back(member->name);
  }
  result.overall = combined(task.name, all, task.weighted);
  return result;
}

std::vector<TaskResult> score_tasks(Device& device, Transformer& model, Activations& activations,
                                    const Tokenizer& tokenizer, std::span<const EvalTask> tasks,
                                    const std::function<void(std::int64_t done, std::int64_t total)>& progress) {
  std::vector<Continuation> texts;
  for (const EvalTask& task : tasks)
    for (const TaskSet& set : task.sets)
      for (const TaskItem& item : set.items)
        for (const TaskRequest& request : item.requests) texts.push_back(encode_request(tokenizer, request));
  const std::vector<Likelihood> likelihoods = log_likelihoods(device, model, activations, texts, progress);
  std::vector<TaskResult> results;
  std::size_t next = 0;
  for (const EvalTask& task : tasks) {
    std::size_t count = 0;
    for (const TaskSet& set : task.sets)
      for (const TaskItem& item : set.items) count += item.requests.size();
    results.push_back(score_task(task, std::span<const Likelihood>(likelihoods).subspan(next, count)));
    for (std::size_t i = next; i < next + count; ++i)
      if (static_cast<std::int64_t>(texts[i].ids.size()) - 1 > activations.sequence()) ++results.back().shortened;
    next += count;
  }
  return results;
}

}  // namespace filigree
