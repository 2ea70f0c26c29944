#include "train/run_log.h"

#include <cmath>
#include <cstring>

namespace filigree {
namespace {

namespace fs = std::filesystem;

// TensorBoard knows its files by "tfevents" in their names.
fs::path event_file(const fs::path& run) {
  return run / "tensorboard" / "events.out.tfevents.filigree";
}

std::vector<float> values_of(Device& device, const Tensor& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.count()));
  if (tensor.dtype == DType::f32) {
    device.copy_to_host(values.data(), tensor);
    return values;
  }
  std::vector<std::uint16_t> halves(values.size());  // bf16: the upper half of fp32
  device.copy_to_host(halves.data(), tensor);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint32_t bits = static_cast<std::uint32_t>(halves[i]) << 16;
    std::memcpy(&values[i], &bits, sizeof bits);
  }
  return values;
}

// A code block of Markdown, so that the lines of a text stay as they are.
std::string verbatim(const std::string& text) {
  std::string result = "    ";
  for (const char c : text) {
    result += c;
    if (c == '\n') result += "    ";
  }
  return result;
}

}  // namespace

RunLog::RunLog(const fs::path& run, bool tensorboard)
    : metrics_(run / "metrics.jsonl"), evaluations_(run / "eval.jsonl") {
  if (tensorboard) events_.emplace(event_file(run));
}

void RunLog::truncate_after(const fs::path& run, std::int64_t step) {
  filigree::truncate_after(run / "metrics.jsonl", step);
  filigree::truncate_after(run / "eval.jsonl", step);
  truncate_events_after(event_file(run), step);
}

void RunLog::append(const StepMetrics& metrics) {
  metrics_.append(metrics);
  if (!events_) return;
  events_->scalar(metrics.step, "train/loss", metrics.loss);
  events_->scalar(metrics.step, "train/lr", metrics.lr);
  events_->scalar(metrics.step, "train/grad_norm", metrics.grad_norm);
  events_->scalar(metrics.step, "speed/step_ms", metrics.step_ms);
  events_->scalar(metrics.step, "speed/tokens_per_s", metrics.tokens_per_s);
  for (const auto& [name, value] : metrics.exchange) events_->scalar(metrics.step, "exchange/" + name, value);
}

void RunLog::append(const EvalMetrics& metrics) {
  evaluations_.append(metrics);
  if (!events_) return;
  for (const auto& [name, value] : metrics.values) events_->scalar(metrics.step, metrics.task + "/" + name, value);
}

void RunLog::weights(std::int64_t step, Device& device, const Transformer& model) {
  if (!events_) return;
  for (const Parameter* parameter : model.parameters())
    events_->histogram(step, "weights/" + parameter->name(), histogram_of(values_of(device, parameter->values())));
  std::vector<float> densities;
  for (const Linear* linear : model.linears())
    densities.push_back(static_cast<float>(linear->weight().describe(device).density));
  events_->histogram(step, "density", histogram_of(densities));
}

void RunLog::text(std::int64_t step, const std::string& name, const std::string& text) {
  if (events_) events_->text(step, name, verbatim(text));
}

void RunLog::flush_to_disk() {
  metrics_.flush_to_disk();
  evaluations_.flush_to_disk();
  if (events_) events_->flush_to_disk();
}

}  // namespace filigree
