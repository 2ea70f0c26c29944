#include "report/run_data.h"

#include <toml++/toml.h>
#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "core/error.h"

namespace filigree {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

std::string joined(const std::string& prefix, const std::string& key) {
  return prefix.empty() ? key : prefix + '.' + key;
}

// A value as TOML writes it, but numbers in their shortest form.
std::string text_of(const toml::node& node) {
  if (const auto number = node.value_exact<double>()) return nlohmann::json(*number).dump();
  std::ostringstream text;
  if (const toml::array* array = node.as_array()) {
    for (std::size_t i = 0; i < array->size(); ++i) text << (i ? ", " : "") << text_of(*array->get(i));
    return '[' + text.str() + ']';
  }
  node.visit([&](const auto& value) { text << value; });
  return text.str();
}

void flatten(const toml::node& node, const std::string& key, FlatTable& out) {
  if (const toml::table* table = node.as_table()) {
    // toml++ sorts keys by name; the file's own order is easier to recognise.
    std::vector<std::pair<toml::source_position, std::pair<std::string, const toml::node*>>> entries;
    for (const auto& [name, value] : *table)
      entries.push_back({name.source().begin, {std::string(name.str()), &value}});
    std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [position, entry] : entries) flatten(*entry.second, joined(key, entry.first), out);
  } else if (const toml::array* array = node.as_array(); array && array->is_array_of_tables()) {
    for (std::size_t i = 0; i < array->size(); ++i) flatten(*array->get(i), key + '[' + std::to_string(i) + ']', out);
  } else if (const auto text = node.value_exact<std::string>()) {
    out.emplace_back(key, *text);
  } else {
    out.emplace_back(key, text_of(node));
  }
}

void flatten(const ordered_json& node, const std::string& key, FlatTable& out) {
  if (node.is_object()) {
    for (const auto& [name, value] : node.items()) flatten(value, joined(key, name), out);
  } else if (node.is_string()) {
    out.emplace_back(key, node.get<std::string>());
  } else {
    out.emplace_back(key, node.dump());
  }
}

std::string read_text(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  require(stream.good(), "cannot be read");
  return text.str();
}

// Runs body(file) if the file exists; what it throws becomes a line of the run's problems.
template <typename Body>
void read_part(RunData& run, const char* name, Body&& body) {
  const fs::path file = run.folder / name;
  std::error_code ignored;
  if (!fs::exists(file, ignored)) return;
  try {
    body(file);
  } catch (const std::exception& error) {
    // nlohmann's messages begin with "[json.exception.parse_error.101] ", which says nothing to a reader.
    std::string text = error.what();
    if (text.starts_with("[json.exception.")) text.erase(0, text.find("] ") + 2);
    run.problems.push_back(std::string(name) + " is left out: " + text);
  }
}

FlatTable read_config(const fs::path& file) {
  FlatTable table;
  try {
    flatten(toml::parse(read_text(file)), "", table);
  } catch (const toml::parse_error& error) {
    std::ostringstream where;
    where << error.source().begin << ": " << error.description();
    throw Error(where.str());
  }
  return table;
}

std::vector<TextSample> read_samples(const fs::path& file) {
  std::vector<TextSample> samples;
  std::ifstream stream(file, std::ios::binary);
  int number = 0;
  for (std::string line; std::getline(stream, line) && !stream.eof();) {  // eof: a torn last line
    ++number;
    try {
      const auto object = nlohmann::json::parse(line);
      TextSample sample;
      sample.step = object.at("step").get<std::int64_t>();
      sample.prompt = object.value("prompt", "");
      sample.text = object.at("text").get<std::string>();
      if (sample.text.starts_with(sample.prompt)) sample.text.erase(0, sample.prompt.size());
      samples.push_back(std::move(sample));
    } catch (const nlohmann::json::exception& error) {
      throw Error("line " + std::to_string(number) + ": " + error.what());
    }
  }
  return samples;
}

RunData read_run(const fs::path& folder) {
  RunData run;
  run.folder = folder;
  require_user(fs::is_directory(folder), folder.string() +
                                             " is not a folder; give the folder of a run, as made by "
                                             "`filigree train CONFIG --out RUN`");
  require_user(fs::exists(folder / "config.toml") || fs::exists(folder / "metrics.jsonl"),
               folder.string() +
                   " is not a run: it has neither config.toml nor metrics.jsonl; give the folder that "
                   "`filigree train CONFIG --out RUN` made");
  read_part(run, "config.toml", [&](const fs::path& file) { run.config = read_config(file); });
  read_part(run, "metrics.jsonl", [&](const fs::path& file) { run.steps = read_step_metrics(file); });
  read_part(run, "eval.jsonl", [&](const fs::path& file) { run.evaluations = read_eval_metrics(file); });
  read_part(run, "inspect.json", [&](const fs::path& file) { run.summary = parse_model_summary(read_text(file)); });
  if (run.summary)
    read_part(run, "checkpoints", [&](const fs::path&) { run.masks = read_layer_masks(run.folder, *run.summary); });
  read_part(run, "samples.jsonl", [&](const fs::path& file) { run.samples = read_samples(file); });
  read_part(run, "environment.json",
            [&](const fs::path& file) { flatten(ordered_json::parse(read_text(file)), "", run.environment); });
  return run;
}

// The last `parts` names of a path: "sweep/a/run" -> "a/run" for 2.
std::string tail_of(const fs::path& folder, int parts) {
  const fs::path full = fs::weakly_canonical(folder);
  fs::path tail;
  fs::path rest = full;
  for (int i = 0; i < parts && rest.has_filename(); ++i, rest = rest.parent_path())
    tail = tail.empty() ? rest.filename() : rest.filename() / tail;
  return tail.empty() ? full.string() : tail.string();
}

// The shortest tails of their paths that tell runs apart. A run that is given twice keeps one name twice.
void name_runs(std::vector<RunData>& runs) {
  std::set<fs::path> folders;
  for (const RunData& run : runs) folders.insert(fs::weakly_canonical(run.folder));
  for (int parts = 1; parts <= 8; ++parts) {
    std::set<std::string> names;
    for (RunData& run : runs) names.insert(run.name = tail_of(run.folder, parts));
    if (names.size() == folders.size()) return;
  }
}

}  // namespace

std::string value_of(const FlatTable& table, const std::string& key) {
  for (const auto& [name, value] : table)
    if (name == key) return value;
  return "";
}

std::vector<RunData> read_runs(const std::vector<fs::path>& folders) {
  std::vector<RunData> runs;
  for (const fs::path& folder : folders) runs.push_back(read_run(folder));
  name_runs(runs);
  return runs;
}

std::vector<double> elapsed_seconds(const std::vector<StepMetrics>& steps) {
  std::vector<double> elapsed;
  elapsed.reserve(steps.size());
  double sum = 0.0;
  for (const StepMetrics& step : steps) {
    if (std::isfinite(step.step_ms)) sum += step.step_ms / 1000;
    elapsed.push_back(sum);
  }
  return elapsed;
}

RunFigures figures_of(const RunData& run) {
  RunFigures figures;
  const std::string preset = value_of(run.config, "model.preset");
  figures.model = preset.empty() ? value_of(run.config, "model.arch") : preset;
  const std::string method = value_of(run.config, "weights.method");
  figures.dense = method.empty() || method == "dense";
  figures.method = figures.dense ? "dense" : method;
  const bool block = figures.method == "block";
  if (const std::string pattern = value_of(run.config, block ? "weights.block" : "weights.pattern");
      !figures.dense && !pattern.empty())
    figures.method.append(" ").append(pattern);
  if (const std::string density = value_of(run.config, "weights.density"); block && !density.empty())
    figures.method.append(", density ").append(density);
  if (const std::string steps = value_of(run.config, "train.steps"); !steps.empty())
    figures.planned_steps = std::atoll(steps.c_str());

  double timed_seconds = 0.0, timed_tokens = 0.0;
  std::int64_t tokens_before = 0;
  for (const StepMetrics& step : run.steps) {
    if (!std::isfinite(step.loss)) ++figures.nonfinite_steps;
    if (std::isfinite(step.step_ms)) {
      timed_seconds += step.step_ms / 1000;
      timed_tokens += static_cast<double>(step.tokens - tokens_before);
    }
    tokens_before = step.tokens;
  }
  if (!run.steps.empty()) {
    figures.steps = run.steps.back().step;
    figures.tokens = run.steps.back().tokens;
    const std::size_t last = std::max<std::size_t>(1, run.steps.size() / 100);
    double sum = 0.0;
    for (std::size_t i = run.steps.size() - last; i < run.steps.size(); ++i) sum += run.steps[i].loss;
    if (std::isfinite(sum)) figures.train_loss = sum / static_cast<double>(last);
  }
  if (timed_seconds > 0) {
    figures.seconds = timed_seconds;
    figures.tokens_per_s = timed_tokens / timed_seconds;
  }
  if (run.summary && run.summary->bytes() > 0) figures.memory_bytes = static_cast<double>(run.summary->bytes());
  for (const EvalMetrics& evaluation : run.evaluations) {
    const auto loss = find_value(evaluation.values, "loss");
    if (!loss) continue;
    figures.eval_step = evaluation.step;
    figures.val_loss = loss;
    figures.perplexity = find_value(evaluation.values, "perplexity");
    figures.bits_per_byte = find_value(evaluation.values, "bits_per_byte");
  }
  return figures;
}

}  // namespace filigree
