#include "eval_command.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "eval_tasks.h"
#include "option_checks.h"

namespace filigree {
namespace {

struct Task {
  const char* name;
  void (*run)(const EvalOptions& options, Device& device, const LoadedModel& loaded);
};
constexpr Task kTasks[] = {{"perplexity", eval_perplexity}, {"blimp", eval_blimp}};

void run(const EvalOptions& options) {
  std::string names;
  for (const Task& task : kTasks) {
    if (options.task == task.name) {
      const auto device = Device::named(options.device);
      task.run(options, *device, load_model(*device, options.path, options.overrides));
      return;
    }
    names += (names.empty() ? "" : ", ") + std::string(task.name);
  }
  throw UserError("--task: " + options.task + "; this version has: " + names);
}

}  // namespace

void add_eval_command(CLI::App& program) {
  const auto options = std::make_shared<EvalOptions>();
  CLI::App* command = program.add_subcommand("eval", "scores a model");
  command->add_option("model", options->path, "a run, or one of its checkpoints")
      ->required()
      ->type_name("RUN|CHECKPOINT");
  command->add_option("--task", options->task, "perplexity (with bits per byte), blimp (pairs of sentences)")
      ->capture_default_str();
  command
      ->add_option("--data", options->data,
                   "perplexity: token shards or a data folder, in place of the run's validation data; blimp: a folder "
                   "or archive of its .jsonl files")
      ->type_name("PATH");
  command->add_option("--tokens", options->tokens, "perplexity: score about this many tokens; 0: all")
      ->capture_default_str()
      ->check(at_least(0));
  command->add_option("--batch", options->batch, "sequences of the model's context at once")
      ->capture_default_str()
      ->check(at_least(1));
  command
      ->add_option("--set", options->overrides, "overrides a key of the model's configuration, e.g. run.precision=fp32")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command->add_option("--device", options->device, "auto, cpu, cuda")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  command->add_flag("--json", options->json, "print one JSON object");
  command->footer(
      "Example:\n  filigree eval runs/quickstart-slope --task perplexity\n"
      "  filigree eval runs/quickstart-slope --task blimp --data blimp.tar.xz\n");
  command->callback([options] { run(*options); });
}

}  // namespace filigree
