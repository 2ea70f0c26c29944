#include "train_command.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/interrupt.h"
#include "io/config_reference.h"
#include "key_places.h"
#include "train/trainer.h"

namespace filigree {
namespace {

struct Options {
  std::string config;
  std::vector<std::string> overrides;
  TrainOptions train;
};

std::unique_ptr<Trainer> make_trainer(const Options& options, Console& console) {
  Config config = read_config(options.config, options.overrides);
  try {
    return std::make_unique<Trainer>(std::move(config), options.train, console);
  } catch (const UserError& error) {
    throw placed(error, options.config, options.overrides);
  }
}

void run(const Options& options) {
  Console console = Console::standard_output();
  const std::unique_ptr<Trainer> trainer = make_trainer(options, console);
  set_interrupt_notice("\nfinishing the step and writing a checkpoint; a second signal stops at once\n");
  if (trainer->run() != TrainOutcome::interrupted) return;
  console.note("go on with --resume");
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
