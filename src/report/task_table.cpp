// The newest score of each evaluation task, the runs side by side: value, standard error, and the difference to the
// dense run in units of the error of that difference.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "report/format.h"
#include "report/html_tables.h"

namespace filigree {
namespace {

struct Score {
  double value = 0.0, error = 0.0;
  std::int64_t step = 0;
};
// What a row of eval.jsonl calls a score and its standard error.
struct Metric {
  const char* name;
  const char* error;
  bool share;
};
constexpr Metric kMetrics[] = {
    {"accuracy", "stderr", true}, {"accuracy_norm", "stderr_norm", true}, {"perplexity", "stderr_perplexity", false}};

std::optional<Score> newest(const RunData& run, const std::string& task, const Metric& metric) {
  std::optional<Score> score;
  for (const EvalMetrics& row : run.evaluations)
    if (const auto value = find_value(row.values, metric.name); value && row.task == task)
      score = {*value, find_value(row.values, metric.error).value_or(NAN), row.step};
  return score;
}

std::string text_of(double value, const Metric& metric) {
  return metric.share ? fmt::format("{:.2f} %", 100.0 * value) : fmt::format("{:.4g}", value);
}

Cell cell_of(const Score& score, const Metric& metric, const std::optional<Score>& dense, std::int64_t steps) {
  Cell cell{text_of(score.value, metric)};
  if (std::isfinite(score.error)) cell.text += " ± " + text_of(score.error, metric);
  if (dense) {
    const double difference = score.value - dense->value;
    cell.small = metric.share ? fmt::format("{:+.2f} points to dense", 100.0 * difference)
                              : fmt::format("{:+.3g} to dense", difference);
    const double error = std::hypot(score.error, dense->error);
    if (std::isfinite(error) && error > 0.0) cell.small += fmt::format(", {:.1f} errors", std::abs(difference) / error);
  }
  if (score.step != steps) cell.small += (cell.small.empty() ? "" : "; ") + ("step " + format_integer(score.step));
  return cell;
}

}  // namespace

std::string tasks_section(const std::vector<RunData>& runs) {
  std::vector<std::string> tasks;
  for (const RunData& run : runs)
    for (const EvalMetrics& row : run.evaluations)
      if (row.task != "perplexity" && std::find(tasks.begin(), tasks.end(), row.task) == tasks.end())
        tasks.push_back(row.task);
  const RunData* dense = nullptr;
  for (const RunData& run : runs)
    if (!dense && figures_of(run).dense) dense = &run;
  std::vector<Row> rows;
  for (const std::string& task : tasks)
    for (const Metric& metric : kMetrics) {
      Row row = {{task, metric.name}};
      bool any = false;
      for (const RunData& run : runs) {
        const std::optional<Score> score = newest(run, task, metric);
        any = any || score;
        const bool compares = score && dense && &run != dense;
        std::optional<Score> base = compares ? newest(*dense, task, metric) : std::nullopt;
        if (base && base->step != score->step) base.reset();
        row.push_back(score ? cell_of(*score, metric, base, figures_of(run).steps) : Cell{""});
      }
      if (any) rows.push_back(std::move(row));
    }
  if (rows.empty()) return "";
  std::vector<std::string> headers = {"Task"};
  for (const RunData& run : runs) headers.push_back(run.name);
  return section(
      "tasks", "Tasks",
      table_html("Scores of the evaluation tasks", headers, rows, 1) +
          "<p class=\"note\">The newest score of each run, ± its standard error. Differences to the dense run "
          "are given after the same step, with how many standard errors of the difference they are: below 2 "
          "it may be chance.</p>\n");
}

}  // namespace filigree
