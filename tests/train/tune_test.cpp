#include "train/tune.h"

#include <nlohmann/json.hpp>

#include "io/config_toml.h"
#include "report/metrics.h"
#include "tiny_run.h"

namespace filigree {
namespace {

namespace fs = std::filesystem;
using testing::file_bytes;
using testing::tiny_run_config;

TuneResult run_tune(const Config& config, const TuneOptions& options, std::string* said = nullptr) {
  std::ostringstream out;
  Console console(out, false);
  const TuneResult result = tune(config, options, console);
  if (said) *said = out.str();
  return result;
}

std::string refusal(const Config& config, const TuneOptions& options) {
  try {
    run_tune(config, options);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TuneResult table(const std::vector<std::pair<double, double>>& losses) {
  TuneResult result;
  for (const auto& [rate, loss] : losses)
    result.rows.push_back({.rate = rate, .diverged = std::isnan(loss), .validation_loss = loss, .run = ""});
  return result;
}

TEST(Tune, ShortensASchedule) {
  EXPECT_EQ(default_tune_steps(20000), 2000);
  EXPECT_EQ(default_tune_steps(600), 200);
  EXPECT_EQ(default_tune_steps(20), 20);
  Config config;
  config.train.steps = 1000;
  config.train.warmup = 100;
  EXPECT_EQ(shortened(config, 200).train.steps, 200);
  EXPECT_EQ(shortened(config, 200).train.warmup, 20);
  EXPECT_EQ(shortened(config, 2).train.warmup, 1);
  EXPECT_EQ(shortened(config, 2000).train.warmup, 200);
  EXPECT_EQ(shortened(config, 200).checkpoint.every, 200) << "one checkpoint";
  config.train.warmup = 0;
  EXPECT_EQ(shortened(config, 200).train.warmup, 0);
  EXPECT_EQ(shortened(config, 1000).train, config.train);
}

TEST(Tune, RemarksOnAPickAtTheEdge) {
  const double diverged = std::numeric_limits<double>::quiet_NaN();
  const TuneResult inside = table({{1e-3, 4.0}, {2e-3, 3.0}, {4e-3, 3.5}});
  EXPECT_EQ(pick(inside)->rate, 2e-3);
  EXPECT_EQ(remark(inside), "");
  EXPECT_NE(remark(table({{1e-3, 4.0}, {2e-3, 3.0}})).find("0.002 is the largest rate tried"), std::string::npos);
  EXPECT_NE(remark(table({{1e-3, 4.0}, {2e-3, 3.0}})).find("--lr 0.004"), std::string::npos);
  EXPECT_NE(remark(table({{1e-3, 3.0}, {2e-3, 4.0}})).find("0.001 is the smallest rate tried"), std::string::npos);
  EXPECT_EQ(remark(table({{1e-3, 4.0}, {2e-3, 3.0}, {4e-3, diverged}})), "") << "that bounds the grid";
  EXPECT_NE(remark(table({{1e-3, 4.0}})).find("one rate alone"), std::string::npos);
  EXPECT_EQ(pick(table({{1e-3, diverged}, {2e-3, diverged}})), nullptr);
  EXPECT_NE(remark(table({{1e-3, diverged}, {2e-3, diverged}})).find("every rate diverged"), std::string::npos);
  EXPECT_EQ(remark({}), "");
}

TEST(Tune, MakesARowARateAndLaterOnlyWhatIsMissing) {
  const testing::TemporaryFolder folder;
  const fs::path out = folder.path() / "a" / "tune";
  const Config config =
      tiny_run_config(folder.path(), {"train.steps=40", "train.clip=0", "train.schedule=constant", "train.lr=7"});
  const TuneResult first = run_tune(config, {.out = out, .rates = {1e30, 4e-3}, .steps = 20});
  ASSERT_EQ(first.rows.size(), 2u);
  EXPECT_EQ(first.rows[0].rate, 4e-3);
  EXPECT_FALSE(first.rows[0].diverged);
  EXPECT_EQ(first.rows[0].steps, 20);
  EXPECT_TRUE(first.rows[1].diverged);
  EXPECT_LT(first.rows[1].steps, 20);
  EXPECT_TRUE(std::isnan(first.rows[1].validation_loss));

  const fs::path run = out / first.rows[0].run;
  const auto steps = read_step_metrics(run / "metrics.jsonl");
  ASSERT_EQ(steps.size(), 20u);
  EXPECT_DOUBLE_EQ(first.rows[0].training_loss, (steps[18].loss + steps[19].loss) / 2);
  EXPECT_EQ(first.rows[0].validation_loss, find_value(read_eval_metrics(run / "eval.jsonl").back().values, "loss"));
  EXPECT_TRUE(fs::exists(run / "report.html"));
  EXPECT_FALSE(fs::exists(run / "data")) << "text is prepared once, for all";
  EXPECT_TRUE(fs::exists(out / "data" / "data.json"));

  const std::string metrics = file_bytes(run / "metrics.jsonl");
  std::string said;
  const TuneResult second = run_tune(config, {.out = out, .rates = {2e-3, 4e-3, 1e30}, .steps = 20}, &said);
  ASSERT_EQ(second.rows.size(), 3u);
  EXPECT_EQ(second.rows[0].rate, 2e-3);
  EXPECT_EQ(second.rows[1].validation_loss, first.rows[0].validation_loss);
  EXPECT_EQ(file_bytes(run / "metrics.jsonl"), metrics);
  EXPECT_NE(said.find("lr 0.004: done before"), std::string::npos) << said;
  // Equal data, model and seed: the first loss, before any update, is the same.
  EXPECT_EQ(read_step_metrics(out / "lr-0.002" / "metrics.jsonl").front().loss, steps.front().loss);

  const auto json = nlohmann::json::parse(file_bytes(out / "tune.json"));
  EXPECT_EQ(json.at("rows").size(), 3u);
  EXPECT_EQ(json.at("pick"), pick(second)->rate);
  EXPECT_TRUE(json.at("rows").at(2).at("validation_loss").is_null());

  // A run that was killed in the middle, and a table that is lost: both are made good.
  fs::remove(out / "tune.json");
  fs::remove_all(out / "lr-0.002" / "checkpoints");
  const TuneResult third = run_tune(config, {.out = out, .rates = {2e-3, 4e-3}, .steps = 20});
  ASSERT_EQ(third.rows.size(), 2u);
  EXPECT_EQ(third.rows[0].validation_loss, second.rows[0].validation_loss);
  EXPECT_EQ(third.rows[1].training_loss, second.rows[1].training_loss);
}

TEST(Tune, RefusesMistakesAndLeavesNothing) {
  const testing::TemporaryFolder folder;
  const fs::path out = folder.path() / "tune";
  const Config config = tiny_run_config(folder.path());
  EXPECT_NE(refusal(config, {.out = out, .rates = {1e-3, 1e-3}}).find("0.001 is given twice"), std::string::npos);
  EXPECT_NE(refusal(config, {.out = out, .rates = {-1e-3}}).find("--lr: -0.001; expected"), std::string::npos);
  Config no_tokenizer = config;
  no_tokenizer.data.tokenizer = "";
  EXPECT_NE(refusal(no_tokenizer, {.out = out, .rates = {1e-3}}).find("data.tokenizer"), std::string::npos);
  EXPECT_FALSE(fs::exists(out));

  fs::create_directories(out);
  std::ofstream(out / "precious") << "mine";
  EXPECT_NE(refusal(config, {.out = out, .rates = {1e-3}}).find("neither a folder of filigree tune"),
            std::string::npos);
  EXPECT_EQ(file_bytes(out / "precious"), "mine");
}

TEST(Tune, RefusesToMixConfigurations) {
  const testing::TemporaryFolder folder;
  const fs::path out = folder.path() / "tune";
  run_tune(tiny_run_config(folder.path()), {.out = out, .rates = {1e-3}, .steps = 3});
  const auto refused = [&](const std::string& key, std::int64_t steps) {
    return refusal(tiny_run_config(folder.path(), {key}), {.out = out, .rates = {2e-3}, .steps = steps});
  };
  EXPECT_NE(refused("train.weight_decay=0.5", 3).find("train.weight_decay: was 0.1, now it is 0.5"), std::string::npos);
  EXPECT_NE(refused("log.every=1", 4).find("train.steps: was 3, now it is 4"), std::string::npos);
  EXPECT_NE(refused("eval.tokens=128", 3).find("eval.tokens"), std::string::npos);
  EXPECT_FALSE(fs::exists(out / "lr-0.002"));
  EXPECT_EQ(refused("log.every=1", 3), "");
  EXPECT_EQ(refused("train.lr=5", 3), "") << "the grid's rates take its place";
}

}  // namespace
}  // namespace filigree
