#include "report/html_tables.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "report/chart_data.h"
#include "report/format.h"
#include "report/html_parts.h"

namespace filigree {
namespace {

constexpr std::size_t kShownSamples = 12;  // a run

std::string state_of(const RunFigures& figures) {
  std::string state;
  if (figures.steps == 0) {
    state = "no step finished";
  } else if (figures.planned_steps > figures.steps) {
    state = fmt::format("of {}", format_integer(figures.planned_steps));
  }
  if (figures.nonfinite_steps > 0)
    state += fmt::format("{}loss not finite in {}", state.empty() ? "" : "\n", format_integer(figures.nonfinite_steps));
  return state;
}

std::string optional_number(const std::optional<double>& value, int digits) {
  return value ? format_number(*value, digits) : "";
}

// Whether two runs trained the same model on the same data in the same batches and precision: only then do their speed,
// memory and loss say something about the method.
bool same_task(const RunData& a, const RunData& b) {
  const auto task_of = [](const RunData& run) {
    FlatTable task;
    for (const auto& [key, value] : run.config) {
      if (key.starts_with("model.") || key.starts_with("data.") || key == "train.batch_tokens" ||
          key == "run.precision") {
        task.emplace_back(key, value);
      }
    }
    std::sort(task.begin(), task.end());
    return task;
  };
  return task_of(a) == task_of(b);
}

std::string ratio_to_dense(const std::optional<double>& value, const std::optional<double>& dense) {
  return value && dense && *dense > 0 ? fmt::format("{:.2f}× dense", *value / *dense) : "";
}

// `dense`: the figures of a dense run of the same task, null if there is none.
Row summary_row(const RunData& run, const RunFigures& figures, const RunFigures* dense) {
  Row row;
  row.push_back({run.name, figures.model});
  const std::string rank = value_of(run.config, "adapters.rank");
  row.push_back({figures.method, rank.empty() || rank == "0" ? "" : "adapters of rank " + rank});
  if (run.summary && run.summary->dense_parameters > 0) {
    row.push_back({format_count(static_cast<double>(run.summary->dense_parameters)),
                   format_count(static_cast<double>(run.summary->kept_parameters)) + " kept"});
  } else {
    row.push_back({""});
  }
  row.push_back({format_integer(figures.steps), state_of(figures)});
  row.push_back({figures.tokens > 0 ? format_count(static_cast<double>(figures.tokens)) : ""});

  // Losses are compared only after the same number of tokens.
  std::string note;
  if (dense && figures.val_loss && dense->val_loss && figures.eval_step == dense->eval_step &&
      figures.tokens == dense->tokens) {
    note = fmt::format("{:+.4f} to dense", *figures.val_loss - *dense->val_loss);
  } else if (figures.eval_step && *figures.eval_step != figures.steps) {
    note = "at step " + format_integer(*figures.eval_step);
  } else if (!figures.val_loss && figures.train_loss) {
    note = "training " + format_number(*figures.train_loss, 5);
  }
  row.push_back({optional_number(figures.val_loss, 5), note});
  row.push_back({optional_number(figures.perplexity, 5)});
  row.push_back({optional_number(figures.bits_per_byte, 5)});
  row.push_back({figures.seconds ? format_duration(*figures.seconds) : ""});
  row.push_back({figures.tokens_per_s ? format_count(*figures.tokens_per_s) : "",
                 dense ? ratio_to_dense(figures.tokens_per_s, dense->tokens_per_s) : ""});
  row.push_back({figures.memory_bytes ? format_bytes(*figures.memory_bytes) : "",
                 dense ? ratio_to_dense(figures.memory_bytes, dense->memory_bytes) : ""});
  return row;
}

// Rows of a table of keys against runs.
std::string key_table(const std::string& label, const std::vector<RunData>& runs, FlatTable RunData::*table,
                      bool only_differences) {
  std::vector<std::string> keys;
  std::set<std::string> known;
  for (const RunData& run : runs)
    for (const auto& [key, value] : run.*table)
      if (known.insert(key).second) keys.push_back(key);
  std::vector<Row> rows;
  for (const std::string& key : keys) {
    Row row = {{key}};
    bool differs = false;
    for (const RunData& run : runs) {
      row.push_back({value_of(run.*table, key)});
      differs = differs || row.back().text != row[1].text;
    }
    if (differs || !only_differences) rows.push_back(std::move(row));
  }
  if (rows.empty()) return "";
  std::vector<std::string> headers = {"Key"};
  for (const RunData& run : runs) headers.push_back(run.name);
  return table_html(label, headers, rows, headers.size());
}

}  // namespace

std::string summary_section(const std::vector<RunData>& runs) {
  std::vector<RunFigures> figures;
  for (const RunData& run : runs) figures.push_back(figures_of(run));
  std::vector<Row> rows;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const RunFigures* dense = nullptr;  // the first dense run that this one may be measured against
    for (std::size_t d = 0; d < runs.size() && !dense && !figures[r].dense; ++d)
      if (figures[d].dense && same_task(runs[r], runs[d])) dense = &figures[d];
    rows.push_back(summary_row(runs[r], figures[r], dense));
  }
  const std::vector<std::string> headers = {"Run",    "Method",     "Parameters", "Steps",
                                            "Tokens", "Val loss",   "Perplexity", "Bits per byte",
                                            "Time",   "Tokens / s", "Memory"};
  std::string body = table_html("Summary of the runs", headers, rows, 2, swatches(runs));
  body +=
      "<p class=\"note\">Time is the sum of the step times, without evaluation and checkpoints; tokens / s is the mean "
      "over the whole run. Memory is the sum of what the run holds, without the workspace.</p>\n";
  return section("summary", "Summary", body);
}

std::string memory_tables(const std::vector<RunData>& runs) {
  std::string html;
  for (const RunData& run : runs) {
    if (!run.summary || run.summary->memory.empty()) continue;
    std::vector<Row> rows;
    const auto add = [&](const std::string& name, std::int64_t bytes, std::int64_t dense) {
      rows.push_back(
          {{name},
           {format_bytes(static_cast<double>(bytes))},
           {format_bytes(static_cast<double>(dense))},
           {dense > 0 ? fmt::format("{:.2f}×", static_cast<double>(bytes) / static_cast<double>(dense)) : ""}});
    };
    for (const MemorySummary& row : run.summary->memory)
      if (row.bytes != 0 || row.dense_bytes != 0) add(row.purpose, row.bytes, row.dense_bytes);
    add("total", run.summary->bytes(), run.summary->dense_bytes());
    html += "<div>" + table_html("Memory of " + run.name, {"Purpose", "This run", "If dense", "Ratio"}, rows, 1) +
            "<p class=\"note\">" + workspace_note(*run.summary) + " " + dense_phase_note(*run.summary) + "</p></div>\n";
  }
  if (html.empty()) return "";
  return "<details><summary>Memory in numbers</summary>\n<div class=\"columns\">" + html + "</div></details>\n";
}

std::string layer_tables(const std::vector<RunData>& runs) {
  std::string body;
  for (const RunData& run : runs) {
    if (!run.summary || run.summary->layers.empty()) continue;
    std::vector<Row> rows;
    for (const LayerGroup& group : group_layers(run.summary->layers)) {
      const LayerSummary& layer = group.layer;
      rows.push_back({{group.name},
                      {layer.method + (layer.pattern.empty() ? "" : " ") + layer.pattern},
                      {layer.backend},
                      {format_integer(group.count)},
                      {fmt::format("{} × {}", layer.rows, layer.columns)},
                      {fmt::format("{:.3g}", layer.density)}});
    }
    body += fmt::format(
        "<details{}><summary>Layers of {}</summary>\n{}{}</details>\n", runs.size() == 1 ? " open" : "",
        escape_html(run.name),
        table_html("Layers of " + run.name, {"Layer", "Method", "Kernel", "Layers", "Shape", "Density"}, rows, 3),
        mask_pictures(run.masks));
  }
  return runs.size() > 1 && !body.empty() ? "<div class=\"columns\">" + body + "</div>\n" : body;
}

std::string samples_section(const std::vector<RunData>& runs) {
  std::string body;
  const std::vector<std::string> marks = swatches(runs);
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const auto& samples = runs[r].samples;
    if (samples.empty()) continue;
    std::string newest, earlier;
    const std::size_t shown = std::min(samples.size(), kShownSamples);
    for (std::size_t i = 0; i < shown; ++i) {
      const TextSample& sample = samples[samples.size() - 1 - i];
      const std::string html =
          fmt::format("<figure class=\"sample\"><figcaption>Step {}</figcaption><p><b>{}</b>{}</p></figure>\n",
                      format_integer(sample.step), escape_html(sample.prompt), escape_html(sample.text));
      (sample.step == samples.back().step ? newest : earlier) += html;
    }
    body += fmt::format("<div class=\"samples\"><h3>{}{}</h3>\n{}", marks[r], escape_html(runs[r].name), newest);
    if (!earlier.empty()) body += "<details><summary>Earlier samples</summary>\n" + earlier + "</details>\n";
    if (shown < samples.size()) {
      body += fmt::format("<p class=\"note\">{} older samples are in samples.jsonl.</p>\n",
                          format_integer(static_cast<std::int64_t>(samples.size() - shown)));
    }
    body += "</div>\n";
  }
  return body.empty() ? "" : section("samples", "Samples", "<div class=\"columns\">" + body + "</div>\n");
}

std::string configuration_section(const std::vector<RunData>& runs) {
  const std::string whole = key_table("Configuration", runs, &RunData::config, false);
  if (whole.empty()) return "";
  std::string body;
  if (runs.size() > 1) {
    const std::string differences = key_table("Configuration keys that differ", runs, &RunData::config, true);
    body += differences.empty() ? "<p>The configurations are equal.</p>\n" : differences;
  }
  body += "<details><summary>The whole configuration</summary>\n" + whole + "</details>\n";
  return section("configuration", runs.size() > 1 ? "Configuration differences" : "Configuration", body);
}

std::string environment_section(const std::vector<RunData>& runs) {
  const std::string table = key_table("Environment", runs, &RunData::environment, false);
  return table.empty() ? "" : section("environment", "Environment", table);
}

std::string problems_section(const std::vector<RunData>& runs) {
  std::string items;
  for (const RunData& run : runs) {
    for (const std::string& problem : run.problems)
      items += fmt::format("<li><b>{}</b>: {}</li>\n", escape_html(run.name), escape_html(problem));
    if (run.steps.empty() && run.problems.empty())
      items += fmt::format("<li><b>{}</b>: no step has been recorded yet</li>\n", escape_html(run.name));
  }
  return items.empty() ? "" : "<aside class=\"problems\" aria-label=\"Problems\"><ul>\n" + items + "</ul></aside>\n";
}

}  // namespace filigree
