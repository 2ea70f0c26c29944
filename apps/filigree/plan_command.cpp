#include "plan_command.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "benchmark/exchange_plan.h"
#include "benchmark/results.h"
#include "io/config_toml.h"
#include "option_checks.h"
#include "planned_vocab.h"
#include "report/format.h"

namespace filigree {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string config;
  std::vector<std::string> overrides;
  std::int64_t ranks = 8;
  std::string network = "slingshot-11";
  double bandwidth = 0.0;  // GB/s; 0: the network's
  std::int64_t per_node = 0;
  double compute_ms = 0.0;
  double overhead_ms = 0.0;
  std::string results, results_case, results_method = "dense";
  bool json = false;
};

// step_ms of a results file: of the wanted method, in the configuration's precision.
double compute_seconds(const Options& options, const Config& config) {
  if (options.results.empty()) return options.compute_ms / 1e3;
  const std::optional<double> ms =
      read_result(options.results, {.name = options.results_case,
                                    .method = options.results_method,
                                    .metric = "step_ms",
                                    .precision = std::string(name_of(config.run.precision))});
  require_user(ms.has_value(), "--results: " + options.results + " has no step_ms of the case " + options.results_case +
                                   ", method " + options.results_method + ", precision " +
                                   std::string(name_of(config.run.precision)) + "; see --case and --method");
  return *ms / 1e3;
}

std::string seconds_text(double seconds) {
  if (seconds <= 0.0) return "-";
  return seconds < 1.0 ? fmt::format("{:.2f} ms", 1e3 * seconds) : fmt::format("{:.3f} s", seconds);
}

const ExchangeForecast& forecast_of(const ExchangePlan& plan, const std::string& exchange) {
  return *std::find_if(plan.forecasts.begin(), plan.forecasts.end(),
                       [&](const ExchangeForecast& forecast) { return forecast.exchange == exchange; });
}

// Ranks from which on, and up to which, an exchange takes less time than dense sums in the same type.
std::string pays_at(const ExchangePlan& plan, std::size_t index) {
  const bool half = plan.forecasts[index].exchange.ends_with("bf16");
  std::int64_t first = 0, last = 0;
  for (const auto& [ranks, seconds] : plan.by_ranks)
    if (seconds[index] < seconds[half ? 1 : 0]) {
      if (first == 0) first = ranks;
      last = ranks;
    }
  return first == 0 ? "nowhere" : fmt::format("{} to {} ranks", first, last);
}

void print(const ExchangePlan& plan, const Options& options, const Network& network, double compute) {
  fmt::print("{} ranks over {}: {:.4g} GB/s a node of {} ({})\n", options.ranks, network.name, network.bandwidth / 1e9,
             network.ranks_per_node, network.origin);
  fmt::print("{} parameters; memory of a rank:", plan.parameters);
  std::int64_t total = 0;
  for (const auto& [purpose, bytes] : plan.memory) {
    fmt::print(" {} {},", purpose, format_bytes(static_cast<double>(bytes)));
    total += bytes;
  }
  fmt::print(" together {}\n\n", format_bytes(static_cast<double>(total)));
  fmt::print("{:<18} {:>14} {:>14} {:>12} {:>12} {:>12}  {}\n", "exchange", "handed over", "sent a rank", "exchange",
             "step, after", "step, beside", "quicker than dense at");
  for (std::size_t i = 0; i < plan.forecasts.size(); ++i) {
    const ExchangeForecast& row = plan.forecasts[i];
    fmt::print("{:<18} {:>14} {:>14} {:>12} {:>12} {:>12}  {}\n", row.exchange, format_bytes(row.payload),
               format_bytes(row.sent), seconds_text(row.seconds), seconds_text(row.step), seconds_text(row.overlapped),
               row.exchange.starts_with("dense") ? "" : pays_at(plan, i));
  }
  fmt::print("\"after\" and \"beside\" the backward pass; means over the steps from gradients.start on\n");
  if (compute > 0.0) {
    const auto fastest = std::min_element(plan.forecasts.begin(), plan.forecasts.end(),
                                          [](const auto& a, const auto& b) { return a.overlapped < b.overlapped; });
    const double dense = forecast_of(plan, "dense-bf16").overlapped;
    fmt::print("quickest overlapped step: {} ({:.1f} % of the time of dense bf16, overlapped, is saved)\n",
               fastest->exchange, 100.0 * (1.0 - fastest->overlapped / dense));
  } else {
    fmt::print("steps need the time of the computation: --compute-ms, or --results FILE --case NAME\n");
  }
  fmt::print("\nexchange by number of ranks\n{:>8}", "ranks");
  for (const ExchangeForecast& row : plan.forecasts) fmt::print(" {:>17}", row.exchange);
  for (const auto& [ranks, seconds] : plan.by_ranks) {
    fmt::print("\n{:>8}", ranks);
    for (const double one : seconds) fmt::print(" {:>17}", seconds_text(one));
  }
  const PaperForecast paper = forecast_paper();
  fmt::print(
      "\n\nthe model on the machine of Radius' paper (64 A100, 2.0 B parameters, density 0.4, fp32, not overlapped):\n"
      "  step {:.3f} s dense, {:.3f} s Radius: {:.1f} % of a step's time saved (the paper: 21 %)\n"
      "  over all {:.1f} % of the time saved, a speed-up of {:.2f} (the paper's 19 % is the speed-up)\n"
      "  dense in bf16 beside the backward pass would take {:.3f} s: the published gain is over a weak baseline\n",
      paper.dense, paper.radius, 100.0 * paper.step_saving, 100.0 * paper.total_saving, paper.total_speedup,
      paper.overlapped_bf16);
}

Json to_json(const ExchangePlan& plan, const Options& options, const Network& network, double compute) {
  Json json = {{"ranks", options.ranks},
               {"network",
                {{"name", network.name},
                 {"bytes_per_s", network.bandwidth},
                 {"ranks_per_node", network.ranks_per_node},
                 {"origin", network.origin}}},
               {"compute_s", compute},
               {"parameters", plan.parameters}};
  for (const auto& [purpose, bytes] : plan.memory) json["memory"][purpose] = bytes;
  json["exchanges"] = Json::array();
  for (const ExchangeForecast& row : plan.forecasts) {
    Json entry = {{"exchange", row.exchange},
                  {"payload_bytes", row.payload},
                  {"sent_bytes", row.sent},
                  {"exchange_s", row.seconds}};
    if (compute > 0.0) {
      entry["step_s"] = row.step;
      entry["overlapped_step_s"] = row.overlapped;
    }
    json["exchanges"].push_back(entry);
  }
  for (const auto& [ranks, seconds] : plan.by_ranks) {
    Json entry = {{"ranks", ranks}};
    for (std::size_t i = 0; i < seconds.size(); ++i) entry[plan.forecasts[i].exchange] = seconds[i];
    json["exchange_s_by_ranks"].push_back(entry);
  }
  const PaperForecast paper = forecast_paper();
  json["paper"] = {{"dense_s", paper.dense},
                   {"radius_s", paper.radius},
                   {"overlapped_bf16_s", paper.overlapped_bf16},
                   {"step_time_saved", paper.step_saving},
                   {"total_time_saved", paper.total_saving},
                   {"total_speedup", paper.total_speedup}};
  return json;
}

void run(const Options& options) {
  require_user(std::filesystem::is_regular_file(options.config),
               options.config + ": there is no such configuration file");
  Config config = read_config(options.config, options.overrides);
  if (config.model.vocab == 0) config.model.vocab = planned_vocab(config.data, options.config);
  check_config(config);
  Network network = network_named(options.network);
  if (options.bandwidth > 0.0) network.bandwidth = options.bandwidth * 1e9;
  if (options.per_node > 0) network.ranks_per_node = static_cast<int>(options.per_node);
  const double compute = compute_seconds(options, config);
  const ExchangePlan plan = plan_exchanges({.config = config,
                                            .ranks = options.ranks,
                                            .network = network,
                                            .compute = compute,
                                            .overhead = options.overhead_ms / 1e3});
  if (options.json)
    fmt::print("{}\n", to_json(plan, options, network, compute).dump(2));
  else
    print(plan, options, network, compute);
}

}  // namespace

void add_plan_command(CLI::App& program) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = program.add_subcommand(
      "plan", "predicts memory, bytes on the wire and step time of many ranks, and which exchange pays where");
  command->add_option("config", options->config, "the configuration file")->required()->type_name("CONFIG.toml");
  command->add_option("--ranks", options->ranks, "data-parallel ranks")
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20));
  std::string names;
  for (const Network& network : known_networks()) names += (names.empty() ? "" : ", ") + std::string(network.name);
  command->add_option("--network", options->network, names)->capture_default_str()->type_name("NAME");
  command->add_option("--bandwidth", options->bandwidth, "GB/s of a node in one direction, in place of the network's")
      ->check(CLI::PositiveNumber);
  command->add_option("--per-node", options->per_node, "ranks of a node, in place of the network's")
      ->check(at_least(1));
  command->add_option("--compute-ms", options->compute_ms, "a rank's step without an exchange")
      ->check(CLI::PositiveNumber);
  command->add_option("--overhead-ms", options->overhead_ms, "of Radius' own passes in a step")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--results", options->results, "take the step from a results file")->type_name("FILE");
  command->add_option("--case", options->results_case, "of --results, e.g. gpt2-355m");
  command->add_option("--method", options->results_method, "of --results")->capture_default_str();
  command->add_option("--set", options->overrides, "overrides a key of the configuration")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command->add_flag("--json", options->json, "print one JSON object");
  command->footer(
      "Example:\n  filigree plan configs/gpt2-124m-slope.toml --set model.vocab=50257 --ranks 64 --compute-ms 400\n");
  command->callback([options] { run(*options); });
}

}  // namespace filigree
