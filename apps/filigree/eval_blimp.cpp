// eval --task blimp: pairs of sentences from a folder or archive.
#include <fmt/core.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "core/interrupt.h"
#include "core/progress.h"
#include "eval/blimp.h"
#include "eval_tasks.h"
#include "report/format.h"

namespace filigree {
namespace {

constexpr std::int64_t kProgressParts = 10000;  // the number of passes is known only when they begin

void print(const BlimpResult& result, const LoadedModel& loaded) {
  fmt::print("{}, step {}\n", loaded.checkpoint.string(), loaded.step);
  std::vector<std::vector<std::string>> rows = {{"phenomenon", "sets", "accuracy"}};
  for (const BlimpMean& mean : result.phenomena)
    rows.push_back({mean.name, std::to_string(mean.sets), format_percent(mean.accuracy)});
  rows.push_back({"mean of all sets", std::to_string(result.overall.sets), format_percent(result.overall.accuracy)});
  std::fputs(format_table(rows, {true, false, false}).c_str(), stdout);
  fmt::print("{} pairs; equal probabilities count as wrong: {}\n", format_integer(result.pairs),
             format_integer(result.ties));
  if (result.long_sentences > 0)
    fmt::print(
        "{} sentences are longer than the model's context of {} tokens; their later tokens see the nearest ones\n",
        format_integer(result.long_sentences), loaded.config.model.context);
}

void print_json(const BlimpResult& result, const LoadedModel& loaded) {
  nlohmann::ordered_json json = {{"checkpoint", loaded.checkpoint.string()},
                                 {"step", loaded.step},
                                 {"task", "blimp"},
                                 {"accuracy", result.overall.accuracy},
                                 {"pairs", result.pairs},
                                 {"ties", result.ties},
                                 {"long_sentences", result.long_sentences},
                                 {"phenomena", nlohmann::ordered_json::array()},
                                 {"sets", nlohmann::ordered_json::array()}};
  for (const BlimpMean& mean : result.phenomena)
    json["phenomena"].push_back({{"phenomenon", mean.name}, {"sets", mean.sets}, {"accuracy", mean.accuracy}});
  for (const BlimpSet& set : result.sets)
    json["sets"].push_back({{"set", set.name},
                            {"phenomenon", set.phenomenon},
                            {"pairs", set.pairs},
                            {"ties", set.ties},
                            {"accuracy", set.accuracy()}});
  fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace

void eval_blimp(const EvalOptions& options, Device& device, const LoadedModel& loaded) {
  require_user(options.data.size() == 1,
               "--task blimp needs one --data: a folder or archive of BLiMP's .jsonl files, such as the folder data of "
               "https://github.com/alexwarstadt/blimp");
  require_user(options.tokens == 0, "--tokens belongs to --task perplexity; blimp scores all sentences");
  require_user(loaded.tokenizer != nullptr,
               options.path + ": this model has no tokenizer, so it cannot read sentences");
  const std::vector<MinimalPairs> sets = read_minimal_pairs(options.data.front());
  const std::int64_t context = loaded.config.model.context;
  Activations activations(device, loaded.config.model, loaded.config.run.precision, options.batch, context,
                          Recompute::inference);
  PlanTable plans(!loaded.config.run.deterministic);
  loaded.model->plan(device, plans, options.batch * context);
  Progress progress(options.json ? nullptr : stderr, "blimp", kProgressParts);
  const BlimpResult result =
      blimp(device, *loaded.model, activations, *loaded.tokenizer, sets, [&](std::int64_t done, std::int64_t total) {
        progress.update(done * kProgressParts / total);
        if (interrupt_requested()) throw Interrupted("interrupted");
      });
  progress.finish(format_integer(result.pairs) + " pairs");
  if (options.json)
    print_json(result, loaded);
  else
    print(result, loaded);
}

}  // namespace filigree
