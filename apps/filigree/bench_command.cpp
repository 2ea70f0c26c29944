#include "bench_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>

#include "benchmark/ceiling.h"
#include "benchmark/infer_benchmark.h"
#include "benchmark/matmul_benchmark.h"
#include "benchmark/memory_benchmark.h"
#include "benchmark/named_method.h"
#include "benchmark/step_benchmark.h"
#include "io/config_toml.h"
#include "io/layer_pattern.h"
#include "io/model_presets.h"
#include "option_checks.h"

namespace filigree {
namespace {

struct Options {
  std::vector<std::string> command;
  std::string json;
  std::vector<std::string> shapes = {"768x768", "768x3072", "3072x768", "2048x2048", "4096x4096"};
  std::vector<std::string> precisions = {"fp32", "bf16"};
  std::vector<std::string> methods = {"dense", "slope", "block"};
  std::string pattern = "2:4";
  std::string block = "auto";
  double density = 0.5;
  std::string model = "gpt2-124m";
  std::vector<std::string> models = {"gpt2-124m"};  // of memory
  std::int64_t tokens = 4096;
  std::int64_t batch = 4;      // of a step
  std::int64_t sequences = 1;  // of inference
  std::int64_t context = 0;
  std::int64_t layers = 0;
  std::int64_t prompt = 128;
  std::int64_t decoded = 16;
  std::int64_t vocab = 0;
  int repeats = 7;
  int threads = 0;
  std::string device = "auto";
  std::string recompute = "none";
  bool deterministic = false;
};

DType precision_named(const std::string& name) {
  require_user(name == "fp32" || name == "bf16", "--precision: " + name + "; it must be fp32 or bf16");
  return name == "fp32" ? DType::f32 : DType::bf16;
}

Pattern pattern_named(const std::string& text) {
  const std::optional<Pattern> pattern = parse_pattern(text);
  require_user(pattern.has_value(), "--pattern: " + text + "; it must be like 2:4, at most 32 wide");
  return *pattern;
}

BlockShape block_named(const std::string& text) {
  const std::optional<BlockShape> block = parse_block(text);
  require_user(block.has_value(), "--block: " + text + "; it must be like 16x16, 4 to 1024 wide, or auto");
  return *block;
}

void check_methods(const Options& options) {
  require_user(!options.methods.empty() && options.methods.front() == "dense",
               "--methods: dense must come first, for the others stand beside it");
  for (const std::string& method : options.methods)
    require_user(parse_method(method).has_value(),
                 "--methods: " + method +
                     "; this version has dense, slope, block, the last two also with adapters: slope-r1.56 has a rank "
                     "of 1.56 % of the width");
}

WeightsConfig weights_named(const Options& options) {
  WeightsConfig weights;
  weights.pattern = pattern_named(options.pattern);
  weights.block = block_named(options.block);
  weights.density = options.density;
  return weights;
}

// Vocabularies of presets that leave it to the tokenizer.
std::int64_t default_vocab(const ModelConfig& model) {
  return model.vocab > 0 ? model.vocab : 2048;
}

Config model_config(const Options& options, const std::string& precision) {
  Config config;
  const std::optional<ModelConfig> preset = model_preset(options.model);
  if (!preset) {
    std::string names;
    for (const ModelConfig& known : model_presets()) names += (names.empty() ? "" : ", ") + known.preset;
    throw UserError("--model: there is no preset " + options.model + "; it must be one of " + names);
  }
  config.model = *preset;
  resolve_shape(config.model);
  if (options.context > 0) config.model.context = options.context;
  if (options.layers > 0) config.model.layers = options.layers;
  config.model.vocab = options.vocab > 0 ? options.vocab : default_vocab(config.model);
  config.run.precision = precision_named(precision);
  config.run.device = options.device;
  config.run.threads = options.threads;
  config.run.deterministic = options.deterministic;
  config.train.recompute = options.recompute;
  config.weights = weights_named(options);
  check_methods(options);
  // The checks of a configuration, on what a configuration would have to say besides.
  Config checked = config;
  checked.data.train = {"-"};
  checked.train.steps = 1;
  checked.train.batch_tokens = config.model.context;
  for (const std::string& method : options.methods) {
    check_config(with_method(checked, parse_method(method).value()));
  }
  return config;
}

void publish(const Options& options, const Device& device, const std::vector<ResultRow>& rows) {
  std::printf("%s\n%s", device.description().c_str(), results_table(rows).c_str());
  if (options.json.empty()) return;
  write_results(options.json, result_context(device, options.command), rows);
  std::printf("written to %s\n", options.json.c_str());
}

void append(std::vector<ResultRow>& rows, std::vector<ResultRow> more) {
  rows.insert(rows.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

void run_matmul(const Options& options) {
  check_results_file(options.json);
  check_methods(options);
  for (const std::string& method : options.methods)
    require_user(parse_method(method)->adapter_percent == 0.0,
                 "--methods: " + method + "; bench matmul times weights alone, without adapters");
  const auto has = [&](const char* method) {
    return std::find(options.methods.begin(), options.methods.end(), method) != options.methods.end();
  };
  const auto device = Device::named(options.device, options.threads);
  std::vector<ResultRow> rows;
  for (const std::string& precision : options.precisions) {
    append(rows, benchmark_ceiling(*device, precision_named(precision), options.repeats));
    for (const std::string& shape : options.shapes) {
      long long inputs = 0, outputs = 0;
      int used = 0;
      const bool read = std::sscanf(shape.c_str(), "%lldx%lld%n", &inputs, &outputs, &used) == 2 &&
                        static_cast<std::size_t>(used) == shape.size();
      require_user(read && inputs > 0 && outputs > 0,
                   "--shape: " + shape + "; it must be INPUTSxOUTPUTS, e.g. 768x3072");
      const Pattern pattern = weights_named(options).pattern;
      require_user(!has("slope") || (inputs % pattern.of == 0 && outputs % pattern.of == 0),
                   "--shape: " + shape + "; both widths must be multiples of " + std::to_string(pattern.of) +
                       " for the pattern " + options.pattern);
      append(rows, benchmark_matmul(*device, {.inputs = inputs,
                                              .outputs = outputs,
                                              .tokens = options.tokens,
                                              .dtype = precision_named(precision),
                                              .methods = options.methods,
                                              .weights = weights_named(options),
                                              .repeats = options.repeats}));
    }
  }
  publish(options, *device, rows);
}

void run_step(const Options& options) {
  check_results_file(options.json);
  const auto device = Device::named(options.device, options.threads);
  std::vector<ResultRow> rows;
  for (const std::string& precision : options.precisions)
    append(rows,
           benchmark_step({.name = options.model,
                           .config = model_config(options, precision),
                           .methods = options.methods,
                           .batch = options.batch,
                           .repeats = options.repeats,
                           .note = [](const std::string& text) { std::fprintf(stderr, "note: %s\n", text.c_str()); }}));
  publish(options, *device, rows);
}

void run_infer(const Options& options) {
  check_results_file(options.json);
  const auto device = Device::named(options.device, options.threads);
  std::vector<ResultRow> rows;
  for (const std::string& precision : options.precisions)
    append(rows, benchmark_infer({.name = options.model,
                                  .config = model_config(options, precision),
                                  .methods = options.methods,
                                  .batch = options.sequences,
                                  .prompt = options.prompt,
                                  .tokens = options.decoded,
                                  .repeats = options.repeats}));
  publish(options, *device, rows);
}

void run_memory(const Options& options) {
  check_results_file(options.json);
  std::vector<ResultRow> rows;
  for (const std::string& model : options.models) {
    Options one = options;
    one.model = model;
    for (const std::string& precision : options.precisions)
      append(rows,
             benchmark_memory({.name = model, .config = model_config(one, precision), .methods = options.methods}));
  }
  publish(options, *Device::plan(Device::means_gpu(options.device)), rows);
}

void add_methods(CLI::App& command, Options& options) {
  command.add_option("--json", options.json, "write or update a results file")->type_name("FILE");
  command.add_option("--precision", options.precisions, "fp32, bf16")->capture_default_str()->delimiter(',');
  command
      .add_option("--methods", options.methods,
                  "dense first, then slope, block, slope-r1.56 (adapters: rank in % of the width)")
      ->capture_default_str()
      ->delimiter(',');
  command.add_option("--pattern", options.pattern, "of slope")->capture_default_str();
  command.add_option("--block", options.block, "of block: OUTPUTSxINPUTS, or auto: as the device likes")
      ->capture_default_str();
  command.add_option("--density", options.density, "of block")->capture_default_str()->check(CLI::Range(1e-6, 1.0));
  command.add_option("--device", options.device, "auto, cpu, cuda")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
}

void add_common(CLI::App& command, Options& options) {
  add_methods(command, options);
  command.add_option("--repeats", options.repeats, "timed rounds; the median counts")
      ->capture_default_str()
      ->check(at_least(1));
  command.add_option("--threads", options.threads, "0: all processors")->capture_default_str()->check(at_least(0));
}

void add_model(CLI::App& command, Options& options) {
  command.add_option("--model", options.model, "a preset's name")->capture_default_str();
  command.add_option("--context", options.context, "in place of the preset's")->check(at_least(1));
  command.add_option("--layers", options.layers, "in place of the preset's")->check(at_least(1));
  command.add_option("--vocab", options.vocab, "in place of the preset's")->check(at_least(1));
}

}  // namespace

void add_bench_command(CLI::App& program, std::vector<std::string> command_line) {
  const auto options = std::make_shared<Options>();
  options->command = std::move(command_line);
  CLI::App* bench =
      program.add_subcommand("bench", "measures speed and memory, always with the dense row beside the sparse one");
  bench->require_subcommand(1);

  CLI::App* matmul = bench->add_subcommand("matmul", "the three products of a linear layer");
  add_common(*matmul, *options);
  matmul->add_option("--shape", options->shapes, "INPUTSxOUTPUTS")->capture_default_str()->delimiter(',');
  matmul->add_option("--tokens", options->tokens, "rows of the input; up to 8: decoding")
      ->capture_default_str()
      ->check(at_least(1));
  matmul->callback([options] { run_matmul(*options); });

  CLI::App* step = bench->add_subcommand("step", "whole training steps");
  add_common(*step, *options);
  add_model(*step, *options);
  step->add_option("--batch", options->batch, "sequences in a step")->capture_default_str()->check(at_least(1));
  step->add_option("--recompute", options->recompute, "as train.recompute")
      ->capture_default_str()
      ->check(CLI::IsMember({"none", "norm", "activation", "block"}));
  step->add_flag("--deterministic", options->deterministic, "as run.deterministic");
  step->callback([options] { run_step(*options); });

  CLI::App* infer = bench->add_subcommand("infer", "reading a prompt and decoding");
  add_common(*infer, *options);
  add_model(*infer, *options);
  infer->add_option("--batch", options->sequences, "sequences at once")->capture_default_str()->check(at_least(1));
  infer->add_option("--prompt", options->prompt, "tokens of the prompt")->capture_default_str()->check(at_least(1));
  infer->add_option("--tokens", options->decoded, "tokens decoded a round")->capture_default_str()->check(at_least(1));
  infer->callback([options] { run_infer(*options); });

  CLI::App* memory = bench->add_subcommand("memory", "what whole models hold, laid out and not allocated");
  add_methods(*memory, *options);
  memory->add_option("--model", options->models, "presets' names")->capture_default_str()->delimiter(',');
  memory->add_option("--vocab", options->vocab, "in place of the preset's")->check(at_least(1));
  memory->callback([options] { run_memory(*options); });

  bench->footer(
      "Example:\n  filigree bench step --model gpt2-124m --batch 4 --precision fp32 --json results.json\n"
      "Random values; every case is timed in turn with its dense twin.\n");
}

}  // namespace filigree
