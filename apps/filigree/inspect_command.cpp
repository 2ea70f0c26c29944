#include "inspect_command.h"

#include <fmt/core.h>
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/training_data.h"
#include "io/config_toml.h"
#include "io/model_presets.h"
#include "planned_vocab.h"
#include "report/format.h"
#include "train/model_loading.h"
#include "train/summary.h"

namespace filigree {
namespace {

struct Options {
  std::string path;
  std::vector<std::string> overrides;
  bool inference = false;
  bool json = false;
};

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

// "forward sparse, dx sparse, dw sparse" as "sparse", and shorter names in what is not all alike.
std::string short_backend(std::string text) {
  replace_all(text, name_of(Backend::dense), "unpacked");
  for (const char* kernel : {"sparse", "unpacked"})
    for (const std::string& one :
         {fmt::format("forward {0}, dx {0}, dw {0}", kernel), fmt::format("forward {}", kernel)})
      if (text == one) return kernel;
  return text;
}

// What a checkpoint is: its step and its phases.
std::string describe(const CheckpointReader& checkpoint, const Config& config) {
  const CheckpointState& state = checkpoint.state();
  if (!state.imported.empty())
    return fmt::format("{}: imported, {} of Hugging Face", checkpoint.folder().filename().string(), state.imported);
  std::string text =
      fmt::format("{}: step {} of {}", checkpoint.folder().filename().string(), state.step, config.train.steps);
  if (state.dense_phase) text += fmt::format(", in its dense phase, which ends at step {}", state.sparse_start);
  if (config.adapters.rank > 0)
    text += state.adapters ? fmt::format(", with adapters since step {}", state.adapter_start)
                           : fmt::format(", without adapters, which come at step {}", state.adapter_start);
  return text;
}

void print(const ModelSummary& summary, const Config& config, const std::string& checks) {
  fmt::print("{} layers, width {}, {} heads, vocabulary {}, context {}; {}\n", config.model.layers, config.model.width,
             config.model.heads, config.model.vocab, config.model.context, name_of(config.run.precision));
  fmt::print("parameters  {} kept of {} ({:.1f} %)\n\n", summary.kept_parameters, summary.dense_parameters,
             100.0 * static_cast<double>(summary.kept_parameters) / static_cast<double>(summary.dense_parameters));
  fmt::print("{:<28} {:>7} {:>7}  {:<8} {:<8} {:>8}  {}\n", "layer", "outputs", "inputs", "method", "pattern",
             "density", "kernels");
  for (const LayerSummary& layer : summary.layers)
    fmt::print("{:<28} {:>7} {:>7}  {:<8} {:<8} {:>8.4f}  {}\n", layer.name, layer.rows, layer.columns, layer.method,
               layer.pattern.empty() ? "-" : layer.pattern, layer.density, short_backend(layer.backend));
  const auto bytes = [](std::int64_t count) { return format_bytes(static_cast<double>(count)); };
  fmt::print("\n{:<14} {:>14} {:>14} {:>7}\n", "memory", "this model", "dense", "ratio");
  for (const MemorySummary& row : summary.memory)
    fmt::print("{:<14} {:>14} {:>14} {:>7}\n", row.purpose, bytes(row.bytes), bytes(row.dense_bytes),
               row.dense_bytes == 0
                   ? "-"
                   : fmt::format("{:.3f}", static_cast<double>(row.bytes) / static_cast<double>(row.dense_bytes)));
  fmt::print("{:<14} {:>14} {:>14} {:>7.3f}\n", "total", bytes(summary.bytes()), bytes(summary.dense_bytes()),
             static_cast<double>(summary.bytes()) / static_cast<double>(summary.dense_bytes()));
  if (summary.dense_steps > 0) fmt::print("{}\n", dense_phase_note(summary));
  fmt::print("{}\n", workspace_note(summary));
  fmt::print("sparse layers alone, adapters apart: {:.4f} of dense\n", summary.sparse_layers_ratio);
  if (!checks.empty()) fmt::print("{}\n", checks);
}

// Every group of every mask in a checkpoint: N:M groups, or rows of blocks. Loading has refused a mask that does not
// fit its pattern, so what is left to say is how much was looked at.
std::string check_masks(const Device& device, const Transformer& model) {
  std::int64_t layers = 0, groups = 0;
  for (const Linear* linear : model.linears()) {
    const LinearSpec& spec = linear->weight().spec();
    if (spec.method == "dense") continue;
    require(linear->weight().describe(device).mask_valid,
            spec.name + ": a group keeps another number of entries than its pattern");
    ++layers;
    groups += spec.method == "block" ? (spec.outputs + spec.block.rows - 1) / spec.block.rows
                                     : spec.outputs * spec.inputs / spec.pattern.of;
  }
  return layers == 0 ? "no sparse layer"
                     : fmt::format("masks: {} groups of {} layers checked, all as their pattern says", groups, layers);
}

void run(const Options& options) {
  const Mode mode = options.inference ? Mode::inference : Mode::training;
  require_user(std::filesystem::exists(options.path),
               options.path + ": there is no such run, checkpoint or configuration file");
  // Sequences whose activations are counted: a training step's, or none.
  const auto sequences = [&](const Config& config) { return mode == Mode::training ? sequences_at_once(config) : 0; };
  Config config;
  ModelSummary summary;
  std::string what, checks;
  if (std::filesystem::is_regular_file(options.path)) {
    config = read_config(options.path, options.overrides);
    if (config.model.vocab == 0) config.model.vocab = planned_vocab(config.data, options.path);
    check_config(config);  // a sparse head's outputs are known only now
    summary = plan_summary(config, mode, sequences(config));
  } else {
    const auto device = Device::cpu();
    const LoadedModel loaded = load_model(*device, options.path, options.overrides);
    config = loaded.config;
    checks = check_masks(*device, *loaded.model);
    const CheckpointReader checkpoint(loaded.checkpoint);
    summary = checkpoint_summary(config, checkpoint, mode, sequences(config));
    what = describe(checkpoint, config) + "\n";
  }
  if (options.json) {
    fmt::print("{}\n", to_json(summary));
  } else {
    fmt::print("{}", what);
    print(summary, config, checks);
  }
}

}  // namespace

void add_inspect_command(CLI::App& program) {
  const auto options = std::make_shared<Options>();
  CLI::App* command =
      program.add_subcommand("inspect", "shows a model's layers, masks and memory beside the dense model's");
  command->add_option("what", options->path, "a run, a checkpoint, or a configuration file (laid out, not allocated)")
      ->required()
      ->type_name("RUN|CHECKPOINT|CONFIG");
  command->add_flag("--inference", options->inference, "memory of the model in use instead of in training");
  command->add_option("--set", options->overrides, "overrides a key of the configuration")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command->add_flag("--json", options->json, "print one JSON object");
  command->footer("Example:\n  filigree inspect configs/gpt2-124m-slope.toml --set model.vocab=50257\n");
  command->callback([options] { run(*options); });
}

}  // namespace filigree
