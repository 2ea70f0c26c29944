#include "train_command.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "io/config_toml.h"
#include "train/trainer.h"

namespace filigree {
namespace {

struct Options {
  std::string config;
  std::vector<std::string> overrides;
  TrainOptions train;
};

void run(const Options& options) {
  Console console = Console::standard_output();
  Trainer trainer(read_config(options.config, options.overrides), options.train, console);
  if (trainer.run() == TrainOutcome::interrupted) throw CLI::RuntimeError(3);
}

}  // namespace

void add_train_command(CLI::App& program) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = program.add_subcommand("train", "trains a model as a configuration file says");
  command->add_option("config", options->config, "the configuration file")->required()->type_name("CONFIG.toml");
  command->add_option("--out", options->train.run, "the run's folder; refused if it exists, unless with --resume")
      ->required()
      ->type_name("RUN");
  command->add_option("--set", options->overrides, "overrides a key of the configuration; may be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command->add_flag("--resume", options->train.resume, "go on from the run's newest checkpoint");
  command->footer(
      "SIGINT or SIGTERM finishes the step, writes a checkpoint and exits with 3.\n\n"
      "Example:\n  filigree train configs/quickstart-slope.toml --out runs/first --set train.steps=200\n");
  command->callback([options] { run(*options); });
}

}  // namespace filigree
