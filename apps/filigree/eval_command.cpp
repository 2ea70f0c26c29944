#include "eval_command.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>

#include "core/interrupt.h"
#include "core/progress.h"
#include "eval/harness_json.h"
#include "eval_tasks.h"
#include "option_checks.h"
#include "report/format.h"

namespace filigree {
namespace {

constexpr const char* kPerplexity = "perplexity";
constexpr std::int64_t kProgressParts = 10000;  // the number of passes is known only when they begin

struct Results {
  std::optional<PerplexityResult> perplexity;
  std::vector<TaskResult> tasks;
};

void print(const PerplexityResult& result) {
  const Perplexity& score = result.score;
  fmt::print("loss           {:.4f} nats a token, over {} tokens\nperplexity     {:.3f}\n", score.loss, score.targets,
             score.perplexity);
  if (std::isfinite(score.bits_per_byte)) fmt::print("bits per byte  {:.4f}\n", score.bits_per_byte);
  if (result.unigram_entropy > 0.0)
    fmt::print("unigram        {:.4f} nats a token: the loss of knowing only how often each token occurs\n",
               result.unigram_entropy);
}

void add_rows(std::vector<std::vector<std::string>>& rows, const std::string& name, const TaskScore& score) {
  for (const MetricScore& metric : score.metrics) {
    const bool first = &metric == &score.metrics.front(), share = metric.name != kPerplexity;
    const double error = metric.standard_error;
    rows.push_back({first ? name : "", first ? format_integer(score.items) : "", metric.name,
                    share ? format_percent(metric.value) : fmt::format("{:.2f}", metric.value),
                    !std::isfinite(error) ? ""
                    : share               ? format_percent(error)
                                          : fmt::format("{:.2f}", error)});
  }
}

void print(const std::vector<TaskResult>& tasks, std::int64_t context) {
  std::vector<std::vector<std::string>> rows = {{"task", "items", "metric", "value", "standard error"}};
  std::int64_t shortened = 0;
  for (const TaskResult& task : tasks) {
    add_rows(rows, task.overall.name, task.overall);
    for (const TaskScore& group : task.groups) add_rows(rows, "  " + group.name, group);
    shortened += task.shortened;
  }
  std::fputs(format_table(rows, {true, false, true, false, false}).c_str(), stdout);
  if (shortened > 0)
    fmt::print("{} texts are longer than the model's context of {} tokens and lost their beginning\n",
               format_integer(shortened), context);
}

void print_json(const Results& results, const EvalOptions& options, const Device& device, const LoadedModel& loaded) {
  nlohmann::ordered_json json = harness_results(results.tasks);
  if (results.perplexity) {
    add_perplexity(json, results.perplexity->score);
    if (results.perplexity->unigram_entropy > 0.0)
      json["results"][kPerplexity]["unigram_entropy,none"] = results.perplexity->unigram_entropy;
  }
  json["config"] = {{"model", "filigree"},
                    {"model_args", "pretrained=" + loaded.checkpoint.string()},
                    {"batch_size", options.batch},
                    {"device", device.description()},
                    {"limit", options.limit > 0 ? nlohmann::ordered_json(options.limit) : nlohmann::ordered_json()}};
  json["checkpoint"] = loaded.checkpoint.string();
  json["step"] = loaded.step;
  fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

std::vector<TaskResult> run_tasks(const EvalOptions& options, const std::vector<EvalTask>& tasks, Device& device,
                                  const LoadedModel& loaded, Activations& activations) {
  Progress progress(options.json ? nullptr : stderr, "tasks", kProgressParts);
  std::vector<TaskResult> results = score_tasks(device, *loaded.model, activations, *loaded.tokenizer, tasks,
                                                [&](std::int64_t done, std::int64_t total) {
                                                  progress.update(done * kProgressParts / total);
                                                  if (interrupt_requested()) throw Interrupted("interrupted");
                                                });
  std::int64_t items = 0;
  for (const EvalTask& task : tasks) items += task.items();
  progress.finish(format_integer(items) + " items");
  return results;
}

void run(const EvalOptions& options) {
  std::vector<std::string> names = options.tasks;
  const bool with_perplexity = std::erase(names, kPerplexity) > 0;
  require_user(with_perplexity || options.tokens == 0,
               "--tokens belongs to --task perplexity; --limit takes the first "
               "items of the others");
  require_user(with_perplexity || options.data.empty(),
               "--data belongs to --task perplexity; the data of other tasks is given by --task-data");
  const std::vector<EvalTask> tasks = load_tasks(names, options.task_data, options.limit);
  const auto device = Device::named(options.device);
  const LoadedModel loaded = load_model(*device, options.path, options.overrides);
  require_user(tasks.empty() || loaded.tokenizer != nullptr,
               options.path + ": this model has no tokenizer, so it cannot read texts");
  const std::int64_t context = loaded.config.model.context;
  Activations activations(*device, loaded.config.model, loaded.config.run.precision, options.batch, context,
                          Recompute::inference);
  PlanTable plans(!loaded.config.run.deterministic);
  loaded.model->plan(*device, plans, options.batch * context);
  Results results;
  if (with_perplexity) results.perplexity = eval_perplexity(options, *device, loaded, activations);
  if (!tasks.empty()) results.tasks = run_tasks(options, tasks, *device, loaded, activations);
  if (options.json) return print_json(results, options, *device, loaded);
  fmt::print("{}, step {}\n", loaded.checkpoint.string(), loaded.step);
  if (results.perplexity) print(*results.perplexity);
  if (!results.tasks.empty()) print(results.tasks, context);
}

}  // namespace

void add_eval_command(CLI::App& program) {
  const auto options = std::make_shared<EvalOptions>();
  CLI::App* command = program.add_subcommand("eval", "scores a model");
  command->add_option("model", options->path, "a run, or one of its checkpoints")
      ->required()
      ->type_name("RUN|CHECKPOINT");
  command
      ->add_option("--task", options->tasks,
                   "one or more, in one pass: perplexity (with bits per byte), " + known_tasks() +
                       ", or the name of a file of your own questions")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("NAME,...")
      ->capture_default_str();
  command
      ->add_option("--task-data", options->task_data,
                   "where the questions are: a folder that holds NAME.jsonl, NAME.tar.xz or NAME/ of each task, or "
                   "NAME=FILE; for a single task also the file, archive or folder alone. Repeat it for several")
      ->allow_extra_args(false)
      ->type_name("PATH|NAME=PATH");
  command
      ->add_option("--limit", options->limit, "the first so many items of each task, or of each of its parts; 0: all")
      ->capture_default_str()
      ->check(at_least(0));
  command
      ->add_option("--data", options->data,
                   "perplexity: token shards or a data folder, in place of the run's validation data")
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
  command->add_flag("--json", options->json, "print one JSON object, in lm-evaluation-harness' form");
  command->footer(
      "Example:\n  filigree eval runs/quickstart-slope\n"
      "  filigree eval runs/quickstart-slope --task blimp --task-data blimp.tar.xz\n"
      "  filigree eval runs/quickstart-slope --task lambada,hellaswag,piqa --task-data data/eval --json\n");
  command->callback([options] { run(*options); });
}

}  // namespace filigree
