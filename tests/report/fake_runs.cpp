#include "fake_runs.h"

#include <fmt/core.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numbers>

#include "core/random.h"
#include "io/safetensors.h"

namespace filigree::testing {
namespace {

constexpr std::int64_t kBatchTokens = 8192;

ModelSummary fake_summary(const std::string& method) {
  const bool sparse = method != "dense";
  ModelSummary summary;
  summary.dense_parameters = 29'938'688;
  summary.kept_parameters = sparse ? 20'501'504 : summary.dense_parameters;
  const auto add = [&](const std::string& name, std::int64_t rows, std::int64_t columns, bool layer_sparse) {
    const char* pattern = method == "block" ? "64x64" : "2:4";
    summary.layers.push_back({name, rows, columns, layer_sparse ? method : "dense", layer_sparse ? pattern : "",
                              layer_sparse ? 0.5 : 1.0, layer_sparse ? "nm-avx512" : "onednn"});
  };
  for (int block = 0; block < 6; ++block) {
    const std::string prefix = fmt::format("blocks.{}.", block);
    add(prefix + "attention.qkv", 1536, 512, sparse && block > 0);
    add(prefix + "attention.out", 512, 512, sparse);
    add(prefix + "mlp.up", 2048, 512, sparse);
    add(prefix + "mlp.down", 512, 2048, sparse);
  }
  add("head", 21504, 512, false);
  constexpr std::int64_t kMiB = 1 << 20;
  const auto memory = [&](const char* purpose, std::int64_t dense, std::int64_t kept) {
    summary.memory.push_back({purpose, (sparse ? kept : dense) * kMiB, dense * kMiB});
  };
  memory("weights", 58, 52);
  memory("metadata", 0, 3);
  memory("masters", 115, 79);
  memory("moments", 230, 158);
  memory("gradients", 115, 79);
  memory("activations", 180, 184);
  summary.workspace_bytes = 40 * kMiB;
  summary.sparse_layers_ratio = sparse ? 0.61 : 1.0;
  return summary;
}

// Masks as a checkpoint has them: kept are the blocks whose row and column add up to an even number; of entries the
// first two of each four.
void write_masks(const std::filesystem::path& folder, const ModelSummary& summary) {
  std::filesystem::create_directories(folder);
  SafetensorsWriter writer(folder / "model.safetensors");
  std::vector<std::pair<std::string, std::vector<std::uint8_t>>> masks;
  for (const LayerSummary& layer : summary.layers) {
    if (layer.method == "dense") continue;
    const bool block = layer.method == "block";
    const std::int64_t rows = block ? layer.rows / 64 : layer.rows, bytes = layer.columns / (block ? 64 : 1) / 8;
    std::vector<std::uint8_t> bits;
    for (std::int64_t row = 0; row < rows; ++row)
      bits.insert(bits.end(), static_cast<std::size_t>(bytes), !block ? 0x33 : row % 2 ? 0xaa : 0x55);
    writer.declare(layer.name + ".weight.mask", StoredType::u8, {rows, bytes});
    masks.emplace_back(layer.name + ".weight.mask", std::move(bits));
  }
  for (const auto& [name, bits] : masks) writer.write(name, bits.data(), bits.size());
  writer.finish();
}

}  // namespace

void write_fake_run(const std::filesystem::path& folder, const FakeRun& run) {
  std::filesystem::create_directories(folder);
  const bool sparse = run.method != "dense";
  std::ofstream(folder / "config.toml") << fmt::format(
      "[run]\nseed = 1\nprecision = \"bf16\"\n\n[model]\npreset = \"\"\narch = \"gpt2\"\nlayers = 6\nwidth = 512\n\n"
      "[train]\nsteps = {}\nbatch_tokens = {}\nlr = {}\nbetas = [0.9, 0.95]\n\n"
      "[weights]\nmethod = \"{}\"\npattern = \"2:4\"\n",
      run.planned_steps, kBatchTokens, sparse ? "1.2e-3" : "1e-3", run.method);
  std::ofstream(folder / "environment.json")
      << R"({"device":{"name":"Some CPU","threads":16},"commit":"0123abc","libraries":{"onednn":"2.6.3"}})"
      << "\n";
  std::ofstream(folder / "inspect.json") << to_json(fake_summary(run.method));
  if (sparse) write_masks(folder / "checkpoints" / "step-00000400", fake_summary(run.method));

  const Random random(sparse ? 2 : 1, RandomPurpose::test);
  MetricsWriter metrics(folder / "metrics.jsonl"), evaluations(folder / "eval.jsonl");
  const double offset = sparse ? 0.06 : 0.0;
  for (std::int64_t step = 1; step <= run.steps; ++step) {
    const auto index = static_cast<std::uint64_t>(step) * 4;
    const double share = static_cast<double>(step) / static_cast<double>(run.planned_steps);
    const double warmup = std::min(1.0, share / 0.05);
    const double level = 3.1 + offset + 6.9 * std::pow(1.0 + 40.0 * share, -0.9);
    StepMetrics line;
    line.step = step;
    line.tokens = step * kBatchTokens;
    line.loss = level + 0.09 * static_cast<double>(random.normal(index));
    line.lr = 1e-3 * warmup * 0.5 * (1.0 + std::cos(std::numbers::pi * share));
    line.grad_norm =
        0.4 + 2.0 * std::exp(-12.0 * share) + 0.05 * std::abs(static_cast<double>(random.normal(index + 1)));
    line.step_ms = (sparse ? 175.0 : 210.0) + 6.0 * std::abs(static_cast<double>(random.normal(index + 2)));
    line.tokens_per_s = static_cast<double>(kBatchTokens) / line.step_ms * 1000.0;
    metrics.append(line);
    if (step % run.eval_every == 0) {
      const double loss = level + 0.05;
      evaluations.append(EvalMetrics{
          step, "perplexity", {{"loss", loss}, {"perplexity", std::exp(loss)}, {"bits_per_byte", loss * 0.36}}});
      if (!run.tasks) continue;
      evaluations.append(
          EvalMetrics{step, "hellaswag", {{"accuracy", sparse ? 0.34 : 0.3}, {"stderr", sparse ? 0.04 : 0.03}}});
      evaluations.append(EvalMetrics{
          step,
          "lambada",
          {{"accuracy", 0.2}, {"stderr", 0.01}, {"perplexity", sparse ? 22.0 : 20.0}, {"stderr_perplexity", 2.0}}});
    }
  }
  std::ofstream samples(folder / "samples.jsonl");
  for (const std::int64_t step : {run.steps / 2, run.steps})
    samples << nlohmann::json{{"step", step}, {"prompt", "Once there was "}, {"text", run.sample}}.dump() << "\n";
}

}  // namespace filigree::testing
