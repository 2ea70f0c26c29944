#include "train/tune.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/interrupt.h"
#include "data/data_info.h"
#include "data/training_data.h"
#include "io/atomic_file.h"
#include "io/config_keys.h"
#include "io/config_toml.h"
#include "report/metrics.h"
#include "train/trainer.h"

namespace filigree {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kLeastSteps = 200;
constexpr std::uint64_t kLongestTable = 16 << 20;
constexpr const char* kTableFile = "tune.json";
const FolderKind kTuneFolder{"folder of filigree tune", "tune.toml"};

nlohmann::ordered_json number(double value) {
  return std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr);
}

double number_of(const nlohmann::json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

// Sorted; refused where one is twice or not a learning rate.
std::vector<double> checked_rates(std::vector<double> rates) {
  const ConfigKey& key = *find_config_key("train.lr");
  for (const double rate : rates) {
    const std::string problem = value_problem(key, rate);
    require_user(problem.empty(), "--lr: " + rate_text(rate) + "; " + problem);
  }
  std::sort(rates.begin(), rates.end());
  const auto twice = std::adjacent_find(rates.begin(), rates.end());
  require_user(twice == rates.end(), "--lr: " + (twice == rates.end() ? "" : rate_text(*twice)) + " is given twice");
  return rates;
}

// Of two configurations whose runs stand in one table. What only belongs to the machine or the console may differ.
bool must_be_equal(const ConfigChange& change) {
  if (change.key == "train.lr") return false;
  return !change.resumable || change.key == "train.steps" || change.key == "eval.tokens";
}

// Throws where a folder's runs were made with another configuration.
void check_configuration(const fs::path& folder, const Config& now) {
  std::string text;
  for (const ConfigChange& change : difference(read_config(folder / kTuneFolder.marker), now))
    if (must_be_equal(change)) text += "\n  " + change.key + ": was " + change.before + ", now it is " + change.after;
  require_user(text.empty(), folder.string() +
                                 ": its runs were made with another configuration; restore these keys, or choose "
                                 "another --out:" +
                                 text);
}

std::vector<TuneRow> read_rows(const fs::path& file) {
  std::vector<TuneRow> rows;
  if (!fs::exists(file)) return rows;
  try {
    const nlohmann::json table = nlohmann::json::parse(read_file(file, kLongestTable));
    for (const nlohmann::json& row : table.at("rows"))
      rows.push_back({.rate = row.at("lr"),
                      .steps = row.at("steps"),
                      .diverged = row.at("diverged"),
                      .training_loss = number_of(row.at("training_loss")),
                      .validation_loss = number_of(row.at("validation_loss")),
                      .seconds = row.at("seconds"),
                      .run = row.at("run")});
  } catch (const nlohmann::json::exception&) {
    throw UserError(file.string() + ": not as filigree tune wrote it; remove it, and the runs that are complete are " +
                    "only read again");
  }
  return rows;
}

// From what the run has written.
TuneRow row_of(double rate, const fs::path& run, bool diverged) {
  TuneRow row{.rate = rate, .diverged = diverged, .run = run.filename().string()};
  const std::vector<StepMetrics> steps = read_step_metrics(run / "metrics.jsonl");
  row.steps = static_cast<std::int64_t>(steps.size());
  for (const StepMetrics& step : steps)
    if (std::isfinite(step.step_ms)) row.seconds += step.step_ms / 1e3;
  if (diverged) return row;
  const std::size_t last = std::max<std::size_t>(steps.size() / 10, 1);
  double sum = 0.0;
  for (std::size_t i = steps.size() - std::min(last, steps.size()); i < steps.size(); ++i) sum += steps[i].loss;
  row.training_loss = sum / static_cast<double>(last);
  const std::vector<EvalMetrics> evaluations = read_eval_metrics(run / "eval.jsonl");
  if (!evaluations.empty())
    row.validation_loss =
        find_value(evaluations.back().values, "loss").value_or(std::numeric_limits<double>::quiet_NaN());
  row.diverged = !std::isfinite(row.validation_loss);
  return row;
}

// All runs read the same tokens: text is prepared once, into the tuning's folder.
void share_data(Config& config, RunFolder& owner) {
  const fs::path& folder = owner.path();
  const TrainingData data =
      find_training_data(config.data, {.run_folder = folder,
                                       .progress = stderr,
                                       .stop = interrupt_requested,
                                       .prepared = [&owner](const fs::path& text) { owner.made(text); }});
  require_user(!data.val.empty(), "data.val: missing; tune chooses by the validation loss");
  if (!fs::exists(folder / "data" / kDataInfoFile)) return;
  config.data = {};
  config.data.train = {(folder / "data").string()};
}

}  // namespace

std::int64_t default_tune_steps(std::int64_t steps) {
  return std::min(steps, std::max(steps / 10, kLeastSteps));
}

Config shortened(const Config& config, std::int64_t steps) {
  Config result = config;
  const double share = static_cast<double>(steps) / static_cast<double>(config.train.steps);
  result.train.steps = steps;
  if (config.train.warmup > 0)
    result.train.warmup = std::max<std::int64_t>(std::llround(static_cast<double>(config.train.warmup) * share), 1);
  if (config.checkpoint.every == 0) result.checkpoint.every = steps;
  return result;
}

const TuneRow* pick(const TuneResult& result) {
  const TuneRow* best = nullptr;
  for (const TuneRow& row : result.rows)
    if (!row.diverged && (best == nullptr || row.validation_loss < best->validation_loss)) best = &row;
  return best;
}

std::string remark(const TuneResult& result) {
  if (result.rows.empty()) return "";
  const TuneRow* best = pick(result);
  const double least = result.rows.front().rate, most = result.rows.back().rate;
  if (best == nullptr) return "every rate diverged: try lower ones, e.g. --lr " + rate_text(least / 8);
  if (result.rows.size() == 1) return "one rate alone has nothing to be compared with: try more, factors of two apart";
  if (best->rate == most)
    return rate_text(most) + " is the largest rate tried, so that a larger one may be better: try e.g. --lr " +
           rate_text(most * 2) + " with the same --out";
  if (best->rate == least)
    return rate_text(least) + " is the smallest rate tried, so that a smaller one may be better: try e.g. --lr " +
           rate_text(least / 2) + " with the same --out";
  return "";
}

TuneResult tune(const Config& config, const TuneOptions& options, Console& console) {
  const std::vector<double> rates = checked_rates(options.rates);
  const std::int64_t steps = options.steps > 0 ? options.steps : default_tune_steps(config.train.steps);
  Config base = shortened(config, steps);
  check_config(base);
  RunFolder folder(fs::absolute(options.out).lexically_normal(), true, kTuneFolder);
  const fs::path table = folder.path() / kTableFile;
  if (folder.is_new()) {
    folder.made(folder.path() / kTuneFolder.marker);
    write_file_atomically(folder.path() / kTuneFolder.marker, write_config(base));
  } else {
    check_configuration(folder.path(), base);
  }
  share_data(base, folder);

  TuneResult result{.steps = steps, .rows = read_rows(table)};
  for (const double rate : rates) {
    const auto known = [&](const TuneRow& row) { return row.rate == rate; };
    if (std::any_of(result.rows.begin(), result.rows.end(), known)) {
      console.note("lr " + rate_text(rate) + ": done before");
      continue;
    }
    const fs::path run = folder.path() / ("lr-" + rate_text(rate));
    base.train.lr = rate;
    bool diverged = false;
    {
      Trainer trainer(base, {.run = run, .resume = fs::exists(run), .announce = rate == rates.front()}, console);
      folder.keep();
      console.note("lr " + rate_text(rate) + ": " + run.string());
      try {
        result.interrupted = trainer.run() == TrainOutcome::interrupted;
      } catch (const Diverged& error) {
        diverged = true;
        console.warn(error.what());
      }
    }
    if (result.interrupted) break;
    result.rows.push_back(row_of(rate, run, diverged));
    std::sort(result.rows.begin(), result.rows.end(),
              [](const TuneRow& a, const TuneRow& b) { return a.rate < b.rate; });
    write_file_atomically(table, to_json(result));
    result.interrupted = interrupt_requested() && rate != rates.back();
    if (result.interrupted) break;
  }
  return result;
}

std::string rate_text(double rate) {
  return nlohmann::json(rate).dump();
}

std::string to_json(const TuneResult& result) {
  const TuneRow* best = pick(result);
  nlohmann::ordered_json json = {{"steps", result.steps},
                                 {"pick", best ? nlohmann::ordered_json(best->rate) : nlohmann::ordered_json(nullptr)},
                                 {"remark", remark(result)},
                                 {"rows", nlohmann::ordered_json::array()}};
  for (const TuneRow& row : result.rows)
    json["rows"].push_back({{"lr", row.rate},
                            {"steps", row.steps},
                            {"diverged", row.diverged},
                            {"training_loss", number(row.training_loss)},
                            {"validation_loss", number(row.validation_loss)},
                            {"seconds", row.seconds},
                            {"run", row.run}});
  return json.dump(2) + "\n";
}

}  // namespace filigree
