#include "tune_command.h"

#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "core/interrupt.h"
#include "key_places.h"
#include "option_checks.h"
#include "report/format.h"
#include "train/tune.h"

namespace filigree {
namespace {

struct Options {
  std::string config;
  std::vector<std::string> overrides;
  std::vector<double> rates;
  std::int64_t steps = 0;
  std::string out;
  bool json = false;
};

TuneResult make(const Options& options, Console& console) {
  const Config config = read_config(options.config, options.overrides);
  const std::filesystem::path out =
      options.out.empty()
          ? std::filesystem::path("runs") / (std::filesystem::path(options.config).stem().string() + "-tune")
          : std::filesystem::path(options.out);
  try {
    return tune(config, {.out = out, .rates = options.rates, .steps = options.steps}, console);
  } catch (const UserError& error) {
    throw placed(error, options.config, options.overrides);
  }
}

void print(const TuneResult& result) {
  const TuneRow* best = pick(result);
  std::vector<std::vector<std::string>> rows = {{"rate", "training loss", "validation loss", "time", ""}};
  for (const TuneRow& row : result.rows)
    rows.push_back({rate_text(row.rate), format_number(row.training_loss, 5), format_number(row.validation_loss, 5),
                    format_duration(row.seconds),
                    row.diverged   ? "diverged after " + std::to_string(row.steps) + " steps"
                    : &row == best ? "lowest"
                                   : ""});
  fmt::print("\n{} steps a rate; the training loss is the mean of the last tenth of them\n{}", result.steps,
             format_table(rows, {false, false, false, false, true}));
  if (best != nullptr) fmt::print("pick: --set train.lr={}\n", rate_text(best->rate));
  if (const std::string text = remark(result); !text.empty()) fmt::print("{}\n", text);
}

void run(const Options& options) {
  set_interrupt_notice("\nfinishing the step and writing a checkpoint; a second signal stops at once\n");
  // With --json standard output is the object's alone.
  Console console = options.json ? Console(std::cerr, isatty(STDERR_FILENO) == 1) : Console::standard_output();
  const TuneResult result = make(options, console);
  if (options.json)
    std::fputs(to_json(result).c_str(), stdout);
  else if (!result.rows.empty())
    print(result);
  if (!result.interrupted) return;
  console.note("interrupted; the same command goes on from here");
  throw CLI::RuntimeError(3);
}

}  // namespace

void add_tune_command(CLI::App& program) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = program.add_subcommand("tune", "trains shortly at several learning rates and picks one");
  command->add_option("config", options->config, "the configuration file")->required()->type_name("CONFIG.toml");
  command->add_option("--lr", options->rates, "the rates to try; they take the place of train.lr")
      ->required()
      ->delimiter(',')
      ->type_name("RATE,RATE,...");
  command
      ->add_option("--steps", options->steps,
                   "steps of each run, the schedule scaled to them; 0: a tenth of train.steps, at least 200, but never "
                   "more than train.steps")
      ->capture_default_str()
      ->check(at_least(0));
  command->add_option("--set", options->overrides, "overrides a key of the configuration; may be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command
      ->add_option(
          "--out", options->out,
          "folder of the runs and of tune.json; runs/NAME-tune by default, NAME that of the configuration file. "
          "One that an earlier call has made is gone on with: only rates that it has not are trained")
      ->type_name("FOLDER");
  command->add_flag("--json", options->json, "print one JSON object, the contents of tune.json");
  command->footer(
      "Data, model and seed are the same for all rates. A run that diverges is a row of the table. SIGINT or SIGTERM "
      "writes a checkpoint and exits with 3; the same command goes on from there.\n\n"
      "Example:\n  filigree tune configs/quickstart-slope.toml --lr 1e-3,2e-3,4e-3,8e-3 --out runs/rates\n");
  command->callback([options] { run(*options); });
}

}  // namespace filigree
