#include "report/chart_data.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "report/curves.h"
#include "report/format.h"

namespace filigree {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kRawPoints = 600;    // of a noisy curve, smallest and largest of 300 stretches
constexpr std::size_t kTrendPoints = 300;  // of its trend
constexpr int kDenseColours = 3;           // as report.css defines
constexpr int kSparseColours = 6;

// Six significant digits: a tenth of a pixel at most, and a third of the bytes of a full double.
std::string plot_number(double value) {
  return std::isfinite(value) ? fmt::format("{:.6g}", value) : "null";
}

// JSON text of the points: {"step": [...], "tokens": [...], "seconds": [...], "value": [...]}.
struct PointLists {
  std::string step, tokens, seconds, value;
  bool empty() const { return value.empty(); }

  void add(std::int64_t at_step, std::int64_t at_tokens, double at_seconds, double at_value) {
    const char* comma = value.empty() ? "" : ",";
    step.append(comma).append(std::to_string(at_step));
    tokens.append(comma).append(std::to_string(at_tokens));
    seconds.append(comma).append(plot_number(at_seconds));
    value.append(comma).append(plot_number(at_value));
  }
  std::string json() const {
    return fmt::format(R"({{"step":[{}],"tokens":[{}],"seconds":[{}],"value":[{}]}})", step, tokens, seconds, value);
  }
};

PointLists lists_of(const RunData& run, const std::vector<double>& elapsed, const std::vector<CurvePoint>& points) {
  PointLists lists;
  for (const CurvePoint& point : points) {
    const StepMetrics& step = run.steps[point.index];
    lists.add(step.step, step.tokens, elapsed[point.index], point.value);
  }
  return lists;
}

// Builds a chart of one curve a run; a run without points is left out, a chart without runs is not made.
class CurveChart {
 public:
  CurveChart(std::string id, std::string title, std::string note) {
    chart_.id = std::move(id);
    chart_.title = std::move(title);
    chart_.note = std::move(note);
  }
  void add(std::size_t run, const std::string& name, const PointLists& raw, const PointLists& smooth, double last) {
    if (raw.empty()) return;
    chart_.series += fmt::format(R"({}{{"run":{},"raw":{}{}}})", runs_ ? "," : "", run, raw.json(),
                                 smooth.empty() ? "" : ",\"smooth\":" + smooth.json());
    chart_.description += fmt::format("{}{} ends at {}", runs_ ? "; " : "", name, format_number(last));
    ++runs_;
  }
  void finish(std::vector<Chart>& charts) && {
    if (runs_ == 0) return;
    chart_.description = fmt::format("Line chart: {} of {} {}. {}.", chart_.title, runs_, runs_ == 1 ? "run" : "runs",
                                     chart_.description);
    chart_.series.insert(0, 1, '[');
    chart_.series += ']';
    chart_.labels = "[]";
    charts.push_back(std::move(chart_));
  }

 private:
  Chart chart_;
  int runs_ = 0;
};

double last_finite(const std::vector<double>& values) {
  for (std::size_t i = values.size(); i-- > 0;)
    if (std::isfinite(values[i])) return values[i];
  return std::numeric_limits<double>::quiet_NaN();
}

using StepValue = std::function<double(const StepMetrics&)>;

void add_step_chart(std::vector<Chart>& charts, const std::vector<RunData>& runs, CurveChart chart, bool noisy,
                    const StepValue& value) {
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const RunData& run = runs[r];
    std::vector<double> values;
    values.reserve(run.steps.size());
    for (const StepMetrics& step : run.steps) values.push_back(value(step));
    if (std::isnan(last_finite(values))) continue;
    const std::vector<double> elapsed = elapsed_seconds(run.steps);
    // A fiftieth of the run: short enough to show what the run did, long enough to compare two of them by eye.
    const std::vector<CurvePoint> line = trend(values, kTrendPoints, std::max<std::size_t>(2, values.size() / 100));
    double last = last_finite(values);
    if (noisy && std::isfinite(line.back().value)) last = line.back().value;
    chart.add(r, run.name, lists_of(run, elapsed, downsample(values, kRawPoints)),
              noisy ? lists_of(run, elapsed, line) : PointLists{}, last);
  }
  std::move(chart).finish(charts);
}

// Position of an evaluation on the axes: those of the last training step up to it.
void add_eval_chart(std::vector<Chart>& charts, const std::vector<RunData>& runs, CurveChart chart,
                    const std::string& task, const std::string& name) {
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const RunData& run = runs[r];
    const std::vector<double> elapsed = elapsed_seconds(run.steps);
    PointLists lists;
    double last = std::numeric_limits<double>::quiet_NaN();
    for (const EvalMetrics& evaluation : run.evaluations) {
      const auto value = find_value(evaluation.values, name);
      if (evaluation.task != task || !value) continue;
      const auto after = std::upper_bound(run.steps.begin(), run.steps.end(), evaluation.step,
                                          [](std::int64_t step, const StepMetrics& line) { return step < line.step; });
      const auto lines = static_cast<std::size_t>(after - run.steps.begin());
      lists.add(evaluation.step, lines ? run.steps[lines - 1].tokens : 0, lines ? elapsed[lines - 1] : 0.0, *value);
      last = *value;
    }
    chart.add(r, run.name, lists, {}, last);
  }
  std::move(chart).finish(charts);
}

// The value that an evaluation is judged by.
std::string main_value(const NamedValues& values) {
  for (const char* name : {"loss", "accuracy"})
    if (find_value(values, name)) return name;
  return values.empty() ? "" : values.front().first;
}

void add_eval_charts(std::vector<Chart>& charts, const std::vector<RunData>& runs) {
  std::vector<std::pair<std::string, std::string>> tasks;
  for (const RunData& run : runs) {
    for (const EvalMetrics& evaluation : run.evaluations) {
      const std::pair<std::string, std::string> task{evaluation.task, main_value(evaluation.values)};
      if (!task.second.empty() && std::find(tasks.begin(), tasks.end(), task) == tasks.end()) tasks.push_back(task);
    }
  }
  for (const auto& [task, name] : tasks) {
    if (task == "perplexity" && name == "loss") {
      add_eval_chart(charts, runs, {"val-loss", "Validation loss", "nats per token"}, task, name);
    } else {
      add_eval_chart(charts, runs, {"eval-" + task, task, name}, task, name);
    }
  }
}

// One bar for each run and, beside it, one for the same model dense, unless an equal bar is there already.
void add_memory_chart(std::vector<Chart>& charts, const std::vector<RunData>& runs) {
  struct Bar {
    std::string name;
    bool planned_dense;               // nobody ran it
    std::vector<std::int64_t> bytes;  // by purpose
  };
  std::vector<std::string> purposes;
  std::set<std::string> used;
  for (const RunData& run : runs) {
    if (!run.summary) continue;
    for (const MemorySummary& row : run.summary->memory) {
      if (std::find(purposes.begin(), purposes.end(), row.purpose) == purposes.end()) purposes.push_back(row.purpose);
      if (row.bytes != 0 || row.dense_bytes != 0) used.insert(row.purpose);
    }
  }
  std::erase_if(purposes, [&](const std::string& purpose) { return !used.contains(purpose); });
  if (purposes.empty()) return;
  std::vector<Bar> bars;
  for (const RunData& run : runs) {
    if (!run.summary || run.summary->memory.empty()) continue;
    Bar own{run.name, false, std::vector<std::int64_t>(purposes.size())};
    Bar dense{run.name, true, std::vector<std::int64_t>(purposes.size())};
    for (const MemorySummary& row : run.summary->memory) {
      const auto place = std::find(purposes.begin(), purposes.end(), row.purpose);
      if (place == purposes.end()) continue;
      own.bytes[static_cast<std::size_t>(place - purposes.begin())] += row.bytes;
      dense.bytes[static_cast<std::size_t>(place - purposes.begin())] += row.dense_bytes;
    }
    bars.push_back(std::move(own));
    const auto equal = [&](const Bar& bar) { return bar.bytes == dense.bytes; };
    if (std::none_of(bars.begin(), bars.end(), equal)) bars.push_back(std::move(dense));
  }
  Chart chart{.kind = ChartKind::memory,
              .id = "memory",
              .title = "Memory by purpose",
              .note = "",
              .description = "",
              .series = "",
              .labels = ""};
  ordered_json labels = ordered_json::array(), series = ordered_json::array();
  for (const Bar& bar : bars) {
    labels.push_back(ordered_json::array({bar.name}));
    if (bar.planned_dense) labels.back().push_back("if dense");
    std::int64_t sum = 0;
    for (const std::int64_t bytes : bar.bytes) sum += bytes;
    chart.description +=
        fmt::format("{}{} {}", chart.description.empty() ? "" : "; ",
                    bar.name + (bar.planned_dense ? ", if dense," : ""), format_bytes(static_cast<double>(sum)));
  }
  for (std::size_t p = 0; p < purposes.size(); ++p) {
    ordered_json values = ordered_json::array();
    for (const Bar& bar : bars) values.push_back(bar.bytes[p]);
    series.push_back({{"name", purposes[p]}, {"value", values}});
  }
  chart.description = "Stacked bars: memory by purpose. " + chart.description + ".";
  chart.labels = labels.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  chart.series = series.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  charts.push_back(std::move(chart));
}

void add_density_chart(std::vector<Chart>& charts, const std::vector<RunData>& runs) {
  std::vector<std::string> names;  // layers of all runs, in the order of the first run that has them
  std::set<std::string> known;
  for (const RunData& run : runs)
    if (run.summary)
      for (const LayerSummary& layer : run.summary->layers)
        if (known.insert(layer.name).second) names.push_back(layer.name);
  if (names.empty()) return;
  ordered_json series = ordered_json::array();
  std::string description;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    if (!runs[r].summary || runs[r].summary->layers.empty()) continue;
    std::map<std::string, double> density;
    double lowest = 1.0;
    for (const LayerSummary& layer : runs[r].summary->layers) {
      density[layer.name] = layer.density;
      lowest = std::min(lowest, layer.density);
    }
    ordered_json values = ordered_json::array();
    for (const std::string& name : names)
      values.push_back(density.contains(name) ? ordered_json(density[name]) : ordered_json());
    series.push_back({{"run", r}, {"value", values}});
    description += fmt::format("{}{} has {} layers, the sparsest of density {:.3g}", description.empty() ? "" : "; ",
                               runs[r].name, density.size(), lowest);
  }
  Chart chart{.kind = ChartKind::density,
              .id = "density",
              .title = "Density by layer",
              .note = "share of each weight matrix that is kept",
              .description = "Bars: density of each layer. " + description + ".",
              .series = "",
              .labels = ""};
  chart.labels = ordered_json(names).dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  chart.series = series.dump();
  charts.push_back(std::move(chart));
}

// Bars of one value a label and run; a label that a run does not have is left out.
void add_bar_chart(std::vector<Chart>& charts, const std::vector<RunData>& runs, Chart chart,
                   const std::vector<std::string>& labels, const std::vector<std::map<std::string, double>>& of_run) {
  if (labels.empty()) return;
  ordered_json series = ordered_json::array();
  std::string description;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    if (of_run[r].empty()) continue;
    ordered_json values = ordered_json::array();
    double sum = 0.0;
    for (const std::string& label : labels) {
      const auto value = of_run[r].find(label);
      values.push_back(value != of_run[r].end() ? ordered_json(value->second) : ordered_json());
      if (value != of_run[r].end()) sum += value->second;
    }
    series.push_back({{"run", r}, {"value", values}});
    description += fmt::format("{}{} has {} of them, {:.3g} on average", description.empty() ? "" : "; ", runs[r].name,
                               of_run[r].size(), sum / static_cast<double>(of_run[r].size()));
  }
  chart.kind = ChartKind::exchange;
  chart.description = "Bars: " + chart.title + ". " + description + ".";
  chart.labels = ordered_json(labels).dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  chart.series = series.dump();
  charts.push_back(std::move(chart));
}

// By tensor: the last of the values that are called `prefix` and the tensor's name.
void add_tensor_chart(std::vector<Chart>& charts, const std::vector<RunData>& runs, Chart chart,
                      const std::string& prefix) {
  std::vector<std::string> names;
  std::set<std::string> known;
  std::vector<std::map<std::string, double>> of_run(runs.size());
  for (std::size_t r = 0; r < runs.size(); ++r)
    for (const StepMetrics& step : runs[r].steps)
      for (const auto& [name, value] : step.exchange) {
        if (!name.starts_with(prefix) || !std::isfinite(value)) continue;
        const std::string tensor = name.substr(prefix.size());
        of_run[r][tensor] = value;
        if (known.insert(tensor).second) names.push_back(tensor);
      }
  add_bar_chart(charts, runs, std::move(chart), names, of_run);
}

// Both of Radius' observations, as this run has them.
void add_exchange_charts(std::vector<Chart>& charts, const std::vector<RunData>& runs) {
  const auto named = [](const char* id, const char* title, const char* note) {
    return Chart{.id = id, .title = title, .note = note, .description = "", .series = "", .labels = ""};
  };
  add_tensor_chart(charts, runs,
                   named("update-share", "Share of the update in the entries that are sent",
                         "of the squared norm, by tensor, when entries were last chosen"),
                   "update_share.");
  // Means over the run, by the masks' age.
  struct Mean {
    double sum = 0.0;
    int count = 0;
  };
  std::set<std::int64_t> ages;
  std::vector<std::map<std::int64_t, Mean>> by_age(runs.size());
  for (std::size_t r = 0; r < runs.size(); ++r)
    for (const StepMetrics& step : runs[r].steps) {
      const auto age = find_value(step.exchange, "mask_age"), share = find_value(step.exchange, "mask_survival");
      if (!age || !share || *age < 1.0) continue;
      Mean& mean = by_age[r][static_cast<std::int64_t>(*age)];
      mean.sum += *share;
      ++mean.count;
      ages.insert(static_cast<std::int64_t>(*age));
    }
  std::vector<std::string> labels;
  for (const std::int64_t age : ages) labels.push_back(fmt::format("{} {}", age, age == 1 ? "step" : "steps"));
  std::vector<std::map<std::string, double>> of_run(runs.size());
  for (std::size_t r = 0; r < runs.size(); ++r)
    for (const auto& [age, mean] : by_age[r])
      of_run[r][fmt::format("{} {}", age, age == 1 ? "step" : "steps")] = mean.sum / mean.count;
  add_bar_chart(charts, runs,
                named("mask-survival", "What is left of a choice after some steps",
                      "share of the entries that would be chosen again, mean over the run"),
                labels, of_run);
  add_tensor_chart(charts, runs,
                   named("mask-survival-tensors", "What is left of the last choice that was compared",
                         "share of the entries that would be chosen again, by tensor"),
                   "mask_survival.");
}

const char* name_of(ChartKind kind) {
  switch (kind) {
    case ChartKind::curves:
      return "curves";
    case ChartKind::memory:
      return "memory";
    case ChartKind::density:
    case ChartKind::exchange:
      return "density";
  }
  return "";
}

}  // namespace

std::vector<Chart> make_charts(const std::vector<RunData>& runs) {
  std::vector<Chart> charts;
  const auto add = [&](const char* id, const char* title, const char* note, bool noisy, const StepValue& value) {
    add_step_chart(charts, runs, {id, title, note}, noisy, value);
  };
  add("loss", "Training loss", "nats per token", true, [](const StepMetrics& step) { return step.loss; });
  add_eval_charts(charts, runs);
  add("lr", "Learning rate", "", false, [](const StepMetrics& step) { return step.lr; });
  add("grad-norm", "Gradient norm", "before clipping", true, [](const StepMetrics& step) { return step.grad_norm; });
  add("tokens-per-s", "Tokens per second", "", true, [](const StepMetrics& step) { return step.tokens_per_s; });
  add("bytes-sent", "Bytes sent by a rank", "in a step", false, [](const StepMetrics& step) {
    return find_value(step.exchange, "bytes_sent").value_or(std::numeric_limits<double>::quiet_NaN());
  });
  add_memory_chart(charts, runs);
  add_density_chart(charts, runs);
  add_exchange_charts(charts, runs);
  return charts;
}

std::string chart_json(const std::vector<RunData>& runs, const std::vector<Chart>& charts) {
  const std::vector<std::string> colours = run_colours(runs);
  ordered_json list = ordered_json::array();
  for (std::size_t r = 0; r < runs.size(); ++r)
    list.push_back({{"name", runs[r].name}, {"colour", colours[r]}, {"dashed", figures_of(runs[r]).dense}});
  std::string text =
      fmt::format("{{\"runs\":{},\"charts\":[", list.dump(-1, ' ', false, ordered_json::error_handler_t::replace));
  for (std::size_t c = 0; c < charts.size(); ++c) {
    const std::string id = ordered_json(charts[c].id).dump(-1, ' ', false, ordered_json::error_handler_t::replace);
    text += fmt::format(R"({}{{"kind":"{}","id":{},"labels":{},"series":{}}})", c ? "," : "", name_of(charts[c].kind),
                        id, charts[c].labels, charts[c].series);
  }
  text += "]}";
  // '<' occurs only inside strings, where its escape means the same.
  std::string safe;
  safe.reserve(text.size());
  for (const char c : text) {
    if (c == '<') {
      safe += "\\u003c";
    } else {
      safe += c;
    }
  }
  return safe;
}

std::vector<std::string> run_colours(const std::vector<RunData>& runs) {
  std::vector<std::string> colours;
  int dense = 0, sparse = 0;
  for (const RunData& run : runs) {
    colours.push_back(figures_of(run).dense ? fmt::format("dense-{}", dense++ % kDenseColours)
                                            : fmt::format("sparse-{}", sparse++ % kSparseColours));
  }
  return colours;
}

}  // namespace filigree
