#include "train_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include "comm/agreement.h"
#include "comm/join.h"
#include "comm/virtual_ranks.h"
#include "core/error.h"
#include "core/interrupt.h"
#include "io/config_reference.h"
#include "key_places.h"
#include "train/trainer.h"
#include "version.h"

namespace filigree {
namespace {

struct Options {
  std::string config;
  std::vector<std::string> overrides;
  TrainOptions train;
};

std::unique_ptr<Trainer> make_trainer(const Options& options, const Config& config, Console& console) {
  try {
    return std::make_unique<Trainer>(config, options.train, console);
  } catch (const UserError& error) {
    throw placed(error, options.config, options.overrides);
  }
}

TrainOutcome train(const Options& options, const Config& config, Console& console) {
  const std::unique_ptr<Trainer> trainer = make_trainer(options, config, console);
  if (!options.train.ranks || options.train.ranks->is_first())
    set_interrupt_notice("\nfinishing the step and writing a checkpoint; a second signal stops at once\n");
  return trainer->run();
}

// As one of several ranks.
TrainOutcome train_as(Communicator& ranks, Options options, const Config& config, Console& first) {
  std::ostream nowhere(nullptr);
  Console silent(nowhere, false);
  options.train.ranks = &ranks;
  return train(options, config, ranks.is_first() ? first : silent);
}

TrainOutcome train_virtual_ranks(const Options& options, const Config& config, Console& console) {
  const auto ranks = static_cast<int>(config.distributed.virtual_ranks);
  Options each = options;
  each.train.threads = std::max(static_cast<int>(std::thread::hardware_concurrency()) / ranks, 1);
  TrainOutcome outcome = TrainOutcome::finished;
  run_virtual_ranks(ranks, [&](Communicator& communicator) {
    const TrainOutcome own = train_as(communicator, each, config, console);
    if (communicator.is_first()) outcome = own;
  });
  return outcome;
}

// A mistake in the file is the same on all ranks: the first says it, and its end is the end of the others. One that
// only another rank sees, for want of the file, is said by that one.
Config read_config_of_rank(const Options& options, const Launch& launch) {
  try {
    return read_config(options.config, options.overrides);
  } catch (const UserError& error) {
    for (int tenths = 0; launch.rank > 0 && tenths < 50; ++tenths) {
      if (interrupt_requested()) throw FailedElsewhere(2, error.what());
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    throw;
  }
}

TrainOutcome train_launched_ranks(const Options& options, const Launch& launch, Console& console) {
  const Config config = read_config_of_rank(options, launch);
  require_user(config.distributed.virtual_ranks == 1,
               "distributed.virtual_ranks: found " + std::to_string(config.distributed.virtual_ranks) + ", but " +
                   launch.launcher + " started " + std::to_string(launch.size) + " ranks; expected 1");
  Options each = options;
  each.train.local_rank = launch.local_rank;
  each.train.threads = threads_of_rank(launch.local_size);
  const std::unique_ptr<Communicator> ranks =
      join_ranks(launch, config, std::string(build::kVersion) + " (" + std::string(build::kCommit) + ")");
  TrainOutcome outcome{};
  as_rank(*ranks, [&] { outcome = train_as(*ranks, each, config, console); });
  return outcome;
}

void run(const Options& options) {
  Console console = Console::standard_output();
  const Launch launch = launch_from_environment();
  TrainOutcome outcome{};
  if (launch.size > 1) {
    outcome = train_launched_ranks(options, launch, console);
  } else {
    const Config config = read_config(options.config, options.overrides);
    outcome = config.distributed.virtual_ranks > 1 ? train_virtual_ranks(options, config, console)
                                                   : train(options, config, console);
  }
  if (outcome != TrainOutcome::interrupted) return;
  if (launch.rank == 0) console.note("go on with --resume");
  throw CLI::RuntimeError(3);
}

}  // namespace

void add_train_command(CLI::App& program) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = program.add_subcommand("train", "trains a model as a configuration file says");
  command->add_option("config", options->config, "the configuration file")->required()->type_name("CONFIG.toml");
  command->add_option("--out", options->train.run, "the run's folder, new or empty; with --resume a run")
      ->required()
      ->type_name("RUN");
  command->add_option("--set", options->overrides, "overrides a key of the configuration; may be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command->add_flag_callback(
      "--keys",
      [] {
        std::fputs(config_reference().c_str(), stdout);
        throw CLI::Success();
      },
      "print every key of a configuration with its default and meaning, and end");
  command->add_flag("--resume", options->train.resume,
                    "go on from the run's newest checkpoint; with the same file and every --set as before");
  command->footer(
      "SIGINT or SIGTERM finishes the step, writes a checkpoint and exits with 3; before the first step it leaves "
      "nothing.\n\n"
      "Example:\n  filigree train configs/quickstart-slope.toml --out runs/first --set train.steps=200\n");
  command->callback([options] { run(*options); });
}

}  // namespace filigree
