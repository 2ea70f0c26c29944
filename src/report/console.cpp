#include "report/console.h"

#include <fmt/core.h>
#include <unistd.h>

#include <iostream>

#include "report/format.h"

namespace filigree {
namespace {

constexpr const char* kBold = "1";
constexpr const char* kDim = "2";
constexpr const char* kYellow = "33";
constexpr const char* kCyan = "36";

// Weight of the newest line in the step time that the remaining time is computed from: about the last five lines.
constexpr double kNewestWeight = 0.3;

std::string heading(const char* name) {
  return fmt::format("{:<11}", name);
}

std::string ratio(std::int64_t bytes, std::int64_t dense) {
  return dense > 0 ? fmt::format("{:.2f}x", static_cast<double>(bytes) / static_cast<double>(dense)) : "-";
}

std::string memory_table(const ModelSummary& summary) {
  std::vector<std::vector<std::string>> rows = {{"memory", "this run", "dense", "ratio"}};
  const auto add = [&](const std::string& name, std::int64_t bytes, std::int64_t dense) {
    rows.push_back({name, format_bytes(static_cast<double>(bytes)), format_bytes(static_cast<double>(dense)),
                    ratio(bytes, dense)});
  };
  for (const MemorySummary& row : summary.memory)
    if (row.bytes != 0 || row.dense_bytes != 0) add(row.purpose, row.bytes, row.dense_bytes);
  add("total", summary.bytes(), summary.dense_bytes());
  return format_table(rows, {true, false, false, false});
}

std::string layer_table(const ModelSummary& summary) {
  std::vector<std::vector<std::string>> rows = {{"layers", "", "shape", "method", "density", "backend"}};
  for (const LayerGroup& group : group_layers(summary.layers)) {
    const LayerSummary& layer = group.layer;
    rows.push_back({group.name, group.count > 1 ? fmt::format("x{}", group.count) : "",
                    fmt::format("{} x {}", layer.rows, layer.columns),
                    layer.pattern.empty() ? layer.method : layer.method + " " + layer.pattern,
                    fmt::format("{:.3g}", layer.density), layer.backend});
  }
  return format_table(rows, {true, false, false, true, false, true});
}

}  // namespace

Console Console::standard_output() {
  return {std::cout, isatty(STDOUT_FILENO) == 1};
}

std::string Console::styled(const char* style, const std::string& text) const {
  return colour_ ? fmt::format("\x1b[{}m{}\x1b[0m", style, text) : text;
}

void Console::start(const StartInfo& info) {
  const ModelSummary& summary = info.summary;
  std::string text = styled(kBold, "filigree");
  if (!info.run.empty()) text.append("  ").append(info.run);
  text += '\n';
  text += heading("device") + info.device + ", " + info.precision + "\n";
  text += heading("model") + info.model + "\n";
  text += heading("parameters") + format_count(static_cast<double>(summary.dense_parameters)) + " dense, " +
          format_count(static_cast<double>(summary.kept_parameters)) + " kept";
  if (summary.dense_parameters > 0) {
    text +=
        " (" +
        format_percent(static_cast<double>(summary.kept_parameters) / static_cast<double>(summary.dense_parameters)) +
        ")";
  }
  text += '\n';
  text += heading("method") + info.method + "\n";
  if (!info.data.empty()) text += heading("data") + info.data + "\n";
  text += heading("training") +
          fmt::format("{} steps of {} tokens", format_integer(info.steps), format_integer(info.batch_tokens));
  if (info.first_step > 0) text += ", resumed after step " + format_integer(info.first_step);
  text += '\n';
  if (!summary.memory.empty()) text += fmt::format("\n{}  {}\n", memory_table(summary), workspace_note(summary));
  if (!summary.layers.empty()) text.append("\n").append(layer_table(summary));
  out_ << text << std::endl;
}

void Console::progress(const ProgressLine& line) {
  step_ms_ = step_ms_ > 0 ? (1 - kNewestWeight) * step_ms_ + kNewestWeight * line.step_ms : line.step_ms;
  const double done = line.steps > 0 ? static_cast<double>(line.step) / static_cast<double>(line.steps) : 0.0;
  const std::size_t digits = std::to_string(line.steps).size();
  std::string text = styled(kDim, "step ") + fmt::format("{:>{}}/{}", line.step, digits, line.steps) +
                     styled(kDim, fmt::format("  {:>5.1f} %", done * 100));
  text += "  loss " + styled(kBold, fmt::format("{:.4f}", line.loss));
  text += fmt::format("  lr {:.2e}  grad {:.3g}", line.lr, line.grad_norm);
  text += "  " + styled(kCyan, format_count(line.tokens_per_s) + " tok/s");
  const double remaining = static_cast<double>(line.steps - line.step) * step_ms_ / 1000;
  if (line.step < line.steps) text += styled(kDim, "  ETA " + format_duration(remaining));
  out_ << text << std::endl;
}

void Console::evaluation(const EvalMetrics& metrics) {
  std::string text = fmt::format("eval  step {}  {}", metrics.step, metrics.task);
  for (const auto& [name, value] : metrics.values) text += "  " + name + " " + format_number(value, 5);
  out_ << styled(kBold, text) << std::endl;
}

void Console::note(const std::string& text) {
  out_ << text << std::endl;
}

void Console::warn(const std::string& text) {
  out_ << styled(kYellow, "warning: " + text) << std::endl;
}

}  // namespace filigree
