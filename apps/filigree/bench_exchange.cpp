#include "bench_exchange.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <mutex>
#include <thread>

#include "benchmark/exchange_benchmark.h"
#include "comm/agreement.h"
#include "comm/join.h"
#include "comm/virtual_ranks.h"
#include "io/config_toml.h"
#include "io/model_presets.h"
#include "option_checks.h"
#include "version.h"

namespace filigree {
namespace {

struct Options {
  std::vector<std::string> command;
  std::string name, json;
  std::string model = "nano-25m";
  std::int64_t layers = 0, context = 0, vocab = 0;
  std::vector<std::string> methods = {"dense", "dense-bf16", "radius-0.4", "slope-radius-0.4"};
  std::int64_t ranks = 4;
  std::int64_t batch = 0;
  std::int64_t interval = 200;
  std::string mode = "faithful";
  double bucket_mb = 25.0;
  bool overlap = false;
  std::string precision = "fp32";
  std::string device = "auto";
  int repeats = 5;
};

Config config_of(const Options& options) {
  Config config;
  const std::optional<ModelConfig> preset = model_preset(options.model);
  require_user(preset.has_value(), "--model: there is no preset " + options.model);
  config.model = *preset;
  resolve_shape(config.model);
  if (options.layers > 0) config.model.layers = options.layers;
  if (options.context > 0) config.model.context = options.context;
  if (options.vocab > 0) config.model.vocab = options.vocab;
  if (config.model.vocab == 0) config.model.vocab = 2048;
  config.run.device = options.device;
  config.run.precision = options.precision == "bf16" ? DType::bf16 : DType::f32;
  config.gradients.interval = options.interval;
  config.gradients.mode = options.mode;
  config.distributed.bucket_mb = options.bucket_mb;
  config.distributed.overlap = options.overlap;
  config.data.train = {"-"};
  config.train.steps = 1;
  config.train.batch_tokens = config.model.context;
  require_user(!options.methods.empty(), "--methods: expected at least one");
  for (const std::string& method : options.methods) {
    const std::optional<NamedExchange> named = parse_exchange(method);
    require_user(named.has_value(),
                 "--methods: " + method +
                     "; it must be like dense, dense-bf16, radius-0.4, topk-0.01-bf16, randomk-0.4, powersgd, each "
                     "with slope- or block- before it");
    Config checked = with_exchange(config, *named);
    // On bf16 wires radius is measured too, though nobody has published it.
    if (checked.gradients.wire_dtype == DType::bf16) checked.gradients.mode = "improved";
    check_config(checked);
  }
  return config;
}

void publish(const Options& options, const std::vector<ResultRow>& rows, const Communicator& ranks) {
  const auto device = Device::named(options.device);
  std::printf("%s, %d ranks (%s)\n%s", device->description().c_str(), ranks.size(), std::string(ranks.name()).c_str(),
              results_table(rows).c_str());
  if (options.json.empty()) return;
  write_results(options.json, result_context(*device, options.command), rows);
  std::printf("written to %s\n", options.json.c_str());
}

void measure(Options options, Communicator& ranks, int threads) {
  if (options.name.empty())
    options.name = (options.device == "cuda" ? "gpu-" : "cpu-") + std::to_string(ranks.size()) + "-ranks";
  const std::vector<ResultRow> rows = benchmark_exchange({.name = options.name,
                                                          .config = config_of(options),
                                                          .methods = options.methods,
                                                          .batch = options.batch,
                                                          .repeats = options.repeats},
                                                         ranks, threads);
  if (ranks.is_first()) publish(options, rows, ranks);
  ranks.barrier();
}

void run(const Options& options) {
  const Launch launch = launch_from_environment();
  if (launch.rank == 0) check_results_file(options.json);
  const Config config = config_of(options);
  if (launch.size > 1) {
    const std::unique_ptr<Communicator> ranks =
        join_ranks(launch, config, std::string(build::kVersion) + " (" + std::string(build::kCommit) + ")");
    as_rank(*ranks, [&] { measure(options, *ranks, threads_of_rank(launch.local_size)); });
    return;
  }
  const auto ranks = static_cast<int>(options.ranks);
  const int threads = std::max(static_cast<int>(std::thread::hardware_concurrency()) / ranks, 1);
  run_virtual_ranks(ranks, [&](Communicator& communicator) { measure(options, communicator, threads); });
}

}  // namespace

void add_bench_exchange(CLI::App& bench, std::vector<std::string> command_line) {
  const auto options = std::make_shared<Options>();
  options->command = std::move(command_line);
  CLI::App* exchange = bench.add_subcommand(
      "exchange", "exchanges of gradients: bytes and time, on virtual ranks or under mpirun, srun, torchrun");
  exchange->add_option("--json", options->json, "write or update a results file")->type_name("FILE");
  exchange->add_option("--case", options->name, "name of the rows; by default like cpu-4-ranks");
  exchange
      ->add_option("--methods", options->methods, "the first is the baseline; [slope-|block-]EXCHANGE[-DENSITY][-bf16]")
      ->capture_default_str()
      ->delimiter(',');
  exchange->add_option("--ranks", options->ranks, "virtual ranks, where no launcher started several")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  exchange->add_option("--model", options->model, "a preset's name")->capture_default_str();
  exchange->add_option("--layers", options->layers, "in place of the preset's")->check(at_least(1));
  exchange->add_option("--context", options->context, "in place of the preset's")->check(at_least(1));
  exchange->add_option("--vocab", options->vocab, "in place of the preset's")->check(at_least(1));
  exchange->add_option("--batch", options->batch, "sequences of a rank's step; 0: the exchange alone, without a step")
      ->capture_default_str()
      ->check(at_least(0));
  exchange->add_flag("--overlap", options->overlap, "as distributed.overlap");
  exchange->add_option("--interval", options->interval, "as gradients.interval")
      ->capture_default_str()
      ->check(at_least(1));
  exchange->add_option("--mode", options->mode, "as gradients.mode")
      ->capture_default_str()
      ->check(CLI::IsMember({"faithful", "improved"}));
  exchange->add_option("--bucket-mb", options->bucket_mb, "as distributed.bucket_mb")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  exchange->add_option("--precision", options->precision, "fp32, bf16")
      ->capture_default_str()
      ->check(CLI::IsMember({"fp32", "bf16"}));
  exchange->add_option("--device", options->device, "auto, cpu, cuda")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  exchange->add_option("--repeats", options->repeats, "timed steps; the median counts")
      ->capture_default_str()
      ->check(at_least(1));
  exchange->footer(
      "Examples:\n  filigree bench exchange --ranks 4 --json results.json\n"
      "  mpirun -np 4 filigree bench exchange --device cpu --methods dense,dense-bf16,radius-0.4,topk-0.01\n");
  exchange->callback([options] { run(*options); });
}

}  // namespace filigree
