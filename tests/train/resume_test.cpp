// N steps in one go equal k steps, a stop, and the rest: every byte of the checkpoints, every figure of the metrics but
// timings; in both precisions, across phases and in the middle of them, and twice in a row.
#include <nlohmann/json.hpp>

#include "data/prepare.h"
#include "tiny_run.h"

namespace filigree {
namespace {

namespace fs = std::filesystem;
using testing::file_bytes;
using testing::tiny_run_config;
using testing::train_tiny;

void expect_equal_runs(const fs::path& a, const fs::path& b, std::int64_t steps) {
  for (const char* file : {"model.safetensors", "optimizer.safetensors", "state.json"}) {
    const fs::path first = checkpoint_path(a, steps) / file, second = checkpoint_path(b, steps) / file;
    ASSERT_TRUE(fs::exists(first) && fs::exists(second)) << second;
    EXPECT_EQ(file_bytes(first), file_bytes(second)) << file;
  }
  const auto left = read_step_metrics(a / "metrics.jsonl"), right = read_step_metrics(b / "metrics.jsonl");
  ASSERT_EQ(left.size(), static_cast<std::size_t>(steps));
  ASSERT_EQ(right.size(), left.size());
  for (std::size_t i = 0; i < left.size(); ++i) {
    EXPECT_EQ(left[i].step, static_cast<std::int64_t>(i) + 1);
    EXPECT_EQ(right[i].step, left[i].step);
    EXPECT_EQ(right[i].tokens, left[i].tokens);
    EXPECT_EQ(right[i].loss, left[i].loss) << "step " << i + 1;
    EXPECT_EQ(right[i].lr, left[i].lr);
    EXPECT_EQ(right[i].grad_norm, left[i].grad_norm);
  }
  EXPECT_EQ(file_bytes(a / "eval.jsonl"), file_bytes(b / "eval.jsonl"));
}

struct Scenario {
  const char* name;
  std::vector<std::string> keys;
};

void PrintTo(const Scenario& scenario, std::ostream* out) {
  *out << scenario.name;
}

class Resume : public ::testing::TestWithParam<Scenario> {};

TEST_P(Resume, EqualsTheUninterruptedRunBitForBit) {
  const bool timed = std::string(GetParam().name).starts_with("timed");
  if (timed && std::string(FILIGREE_TEST_DEVICE) == "cuda")
    GTEST_SKIP() << "libraries choose algorithms by time, too, and not all add in a fixed order";
  const testing::TemporaryFolder folder;
  std::vector<std::string> keys = GetParam().keys;
  keys.push_back("checkpoint.every=1");
  keys.push_back("checkpoint.keep=0");
  const Config config = tiny_run_config(folder.path(), keys);
  const fs::path whole = folder.path() / "whole";
  ASSERT_EQ(train_tiny(config, whole), TrainOutcome::finished);

  // A run that dies at any step leaves its checkpoints, and metrics that may be ahead of them. Such a run is what a
  // copy of the whole run without its later checkpoints is.
  for (const std::int64_t last : {1, 3, 5, 7}) {
    const fs::path broken = folder.path() / ("broken-" + std::to_string(last));
    fs::copy(whole, broken, fs::copy_options::recursive);
    for (std::int64_t step = last + 1; step <= 8; ++step) fs::remove_all(checkpoint_path(broken, step));
    std::ofstream(broken / "metrics.jsonl", std::ios::app) << "{\"step\": 9, \"lo";  // torn in the middle of a line
    std::string said;
    ASSERT_EQ(train_tiny(config, broken, true, &said), TrainOutcome::finished);
    expect_equal_runs(whole, broken, 8);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Scenarios, Resume,
    ::testing::Values(
        // Kernels chosen by time: another run may choose others, but a checkpoint has those of its own run.
        Scenario{"timed", {"run.deterministic=false", "run.precision=bf16"}},
        Scenario{"timed_phases",
                 {"run.deterministic=false", "weights.start=0.5", "weights.mask=magnitude", "adapters.rank=4",
                  "adapters.start=0.75"}},
        Scenario{"fp32", {}}, Scenario{"bf16", {"run.precision=bf16"}},
        Scenario{"adapters", {"adapters.rank=4", "adapters.start=0.5"}},
        Scenario{"adapters_bf16", {"adapters.rank=4", "adapters.start=0.5", "run.precision=bf16"}},
        Scenario{"dense_first", {"weights.start=0.5", "weights.mask=magnitude"}},
        Scenario{"fixed_columns", {"weights.column_mask=fixed", "run.precision=bf16"}},
        Scenario{"dense", {"weights.method=dense"}}, Scenario{"block", {"weights.method=block", "weights.block=8x8"}},
        Scenario{"block_bf16",
                 {"weights.method=block", "weights.block=16x16", "run.precision=bf16", "weights.density=0.25",
                  "adapters.rank=4", "adapters.start=0.5"}},
        Scenario{"block_dense_first",
                 {"weights.method=block", "weights.block=16x8", "weights.start=0.5", "weights.mask=magnitude"}},
        Scenario{"llama", {"model.arch=llama", "model.kv_heads=1", "weights.pattern=2:8"}}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(Resume, TwiceInARow) {
  const testing::TemporaryFolder folder;
  const Config config = tiny_run_config(folder.path(), {"checkpoint.every=2", "checkpoint.keep=0"});
  const fs::path whole = folder.path() / "whole", broken = folder.path() / "broken";
  train_tiny(config, whole);
  fs::copy(whole, broken, fs::copy_options::recursive);
  for (const std::int64_t gone : {4, 6, 8}) fs::remove_all(checkpoint_path(broken, gone));
  train_tiny(config, broken, true);
  for (const std::int64_t gone : {6, 8}) fs::remove_all(checkpoint_path(broken, gone));
  train_tiny(config, broken, true);
  expect_equal_runs(whole, broken, 8);
}

TEST(Resume, ConsoleLinesAreThoseOfTheWholeRun) {
  const testing::TemporaryFolder folder;
  const Config config =
      tiny_run_config(folder.path(), {"checkpoint.every=3", "checkpoint.keep=0", "log.every=5", "train.steps=10"});
  const fs::path run = folder.path() / "run";
  std::string whole, resumed;
  train_tiny(config, run, false, &whole);
  for (const std::int64_t gone : {6, 9, 10}) fs::remove_all(checkpoint_path(run, gone));
  train_tiny(config, run, true, &resumed);
  for (const char* step : {"step  5/10", "step 10/10"}) {
    const auto line = [&](const std::string& text) {  // without the speed at its end
      const std::size_t begin = text.find(step);
      return begin == std::string::npos ? "no line" : text.substr(begin, text.find("grad", begin) - begin);
    };
    EXPECT_NE(line(whole), "no line") << whole;
    EXPECT_EQ(line(resumed), line(whole));
  }
}

TEST(Resume, WithoutARunStartsOneAndSaysSo) {
  const testing::TemporaryFolder folder;
  std::string said;
  EXPECT_EQ(train_tiny(tiny_run_config(folder.path()), folder.path() / "new", true, &said), TrainOutcome::finished);
  EXPECT_NE(said.find("warning: " + (folder.path() / "new").string() + ": there is no run here yet, a new one starts"),
            std::string::npos)
      << said;
}

TEST(Resume, MoreStepsThatChangeTheRateAreWarnedOf) {
  const testing::TemporaryFolder folder;
  train_tiny(tiny_run_config(folder.path()), folder.path() / "run");
  std::string said;
  train_tiny(tiny_run_config(folder.path(), {"train.steps=10"}), folder.path() / "run", true, &said);
  EXPECT_NE(said.find("warning: train.steps is 10 and was 8"), std::string::npos) << said;
}

TEST(Resume, SeparateRunsAreBitEqualWhenDeterministic) {
  const testing::TemporaryFolder folder;
  const Config config = tiny_run_config(folder.path());
  train_tiny(config, folder.path() / "a");
  train_tiny(config, folder.path() / "b");
  expect_equal_runs(folder.path() / "a", folder.path() / "b", 8);
}

TEST(Resume, WithoutACheckpointStartsAgain) {
  const testing::TemporaryFolder folder;
  const Config config = tiny_run_config(folder.path());
  train_tiny(config, folder.path() / "a");
  fs::copy(folder.path() / "a", folder.path() / "b", fs::copy_options::recursive);
  fs::remove_all(folder.path() / "b" / "checkpoints");
  ASSERT_EQ(train_tiny(config, folder.path() / "b", true), TrainOutcome::finished);
  expect_equal_runs(folder.path() / "a", folder.path() / "b", 8);
}

TEST(Resume, FinishedRunSaysSoAndMoreStepsGoOn) {
  const testing::TemporaryFolder folder;
  const fs::path run = folder.path() / "run";
  train_tiny(tiny_run_config(folder.path(), {"train.schedule=constant"}), run);
  const std::string before = file_bytes(run / "metrics.jsonl");
  std::string said;
  EXPECT_EQ(train_tiny(tiny_run_config(folder.path(), {"train.schedule=constant"}), run, true, &said),
            TrainOutcome::already_finished);
  EXPECT_NE(said.find("finished at step 8"), std::string::npos) << said;
  EXPECT_EQ(file_bytes(run / "metrics.jsonl"), before);
  EXPECT_EQ(train_tiny(tiny_run_config(folder.path(), {"train.schedule=constant", "train.steps=10"}), run, true),
            TrainOutcome::finished);
  EXPECT_EQ(read_step_metrics(run / "metrics.jsonl").size(), 10u);
}

// The device chooses the blocks of a new run; the run keeps them.
TEST(Resume, ChosenBlocksArePartOfTheRun) {
  const testing::TemporaryFolder folder;
  const fs::path run = folder.path() / "run";
  const Config config = tiny_run_config(folder.path(), {"weights.method=block", "weights.block=8x16"});
  train_tiny(config, run);
  Config open = config;
  open.weights.block = kAutoBlock;
  std::string said;
  EXPECT_EQ(train_tiny(open, run, true, &said), TrainOutcome::already_finished);
  EXPECT_EQ(read_config(run / "config.toml").weights.block, (BlockShape{8, 16}));
  if (std::string(FILIGREE_TEST_DEVICE) != "cpu") return;  // a GPU's blocks are larger than these layers
  train_tiny(open, folder.path() / "new");
  EXPECT_EQ(read_config(folder.path() / "new" / "config.toml").weights.block, default_block(false));
}

TEST(Resume, AChangedKeyIsNamed) {
  const testing::TemporaryFolder folder;
  const fs::path run = folder.path() / "run";
  train_tiny(tiny_run_config(folder.path()), run);
  const std::string before = file_bytes(run / "config.toml");
  try {
    train_tiny(tiny_run_config(folder.path(), {"train.lr=0.5", "log.every=3"}), run, true);
    FAIL() << "accepted";
  } catch (const UserError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("train.lr"), std::string::npos) << text;
    EXPECT_NE(text.find("0.003"), std::string::npos) << text;
    EXPECT_NE(text.find("0.5"), std::string::npos) << text;
    EXPECT_EQ(text.find("log.every"), std::string::npos) << text;
  }
  EXPECT_EQ(file_bytes(run / "config.toml"), before);
}

Config config_on_shards(const fs::path& folder) {
  return tiny_run_config(folder, {"data.train=[\"" + (folder / "data" / "train-*.bin").string() + "\"]",
                                  "data.val=[\"" + (folder / "data" / "val-*.bin").string() + "\"]",
                                  "data.tokenizer=\"\"", "checkpoint.every=4", "checkpoint.keep=0"});
}

void prepare_text(const fs::path& folder, const std::string& first = "") {
  testing::write_text(folder / "text.txt");
  const std::string text = first + file_bytes(folder / "text.txt");
  std::ofstream(folder / "text.txt") << text;
  fs::remove_all(folder / "data");
  prepare({.text = {folder / "text.txt"}, .val_text = {}, .tokenizer = "bytes", .out = folder / "data", .stop = {}});
}

// A run on token shards, stopped after step 4.
class ResumeOnShards : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(home_);
    prepare_text(home_);
    train_tiny(config_on_shards(home_), home_ / "run");
    fs::copy(home_ / "run", home_ / "whole", fs::copy_options::recursive);
    fs::remove_all(checkpoint_path(home_ / "run", 8));
  }
  std::string refusal() {
    try {
      train_tiny(config_on_shards(home_), home_ / "run", true);
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  }
  testing::TemporaryFolder folder_;
  fs::path home_ = folder_.path() / "home";
};

TEST_F(ResumeOnShards, OtherTokensUnderTheSameNameAreRefused) {
  const std::string before = file_bytes(home_ / "run" / "metrics.jsonl");
  prepare_text(home_, "A line before it.\n");
  const std::string text = refusal();
  EXPECT_NE(text.find("data.train: the run was started with "), std::string::npos) << text;
  EXPECT_EQ(text.find("data.val: "), std::string::npos) << text;
  EXPECT_EQ(text.find("train-*.bin"), std::string::npos) << text;
  EXPECT_EQ(file_bytes(home_ / "run" / "metrics.jsonl"), before);
  prepare_text(home_);
  EXPECT_EQ(refusal(), "");
}

TEST_F(ResumeOnShards, AnotherShardInAGlobIsRefused) {
  fs::copy_file(home_ / "data" / "val-000000.bin", home_ / "data" / "train-000001.bin");
  const std::string text = refusal();
  EXPECT_NE(text.find("data.train: the run was started with "), std::string::npos) << text;
  EXPECT_EQ(text.find("data.val: "), std::string::npos) << text;
}

TEST_F(ResumeOnShards, AMovedRunGoesOn) {
  const fs::path moved = folder_.path() / "moved";
  fs::rename(home_, moved);
  ASSERT_EQ(train_tiny(config_on_shards(moved), moved / "run", true), TrainOutcome::finished);
  expect_equal_runs(moved / "whole", moved / "run", 8);
  EXPECT_EQ(read_config(moved / "run" / "config.toml").data, config_on_shards(moved).data);
}

TEST_F(ResumeOnShards, ACheckpointThatDoesNotKnowItsDataIsTakenAtItsWord) {
  const fs::path file = checkpoint_path(home_ / "run", 4) / "state.json";
  auto state = nlohmann::ordered_json::parse(file_bytes(file));
  ASSERT_EQ(state.erase("data"), 1u);
  std::ofstream(file) << state.dump(2) << "\n";
  std::string said;
  ASSERT_EQ(train_tiny(config_on_shards(home_), home_ / "run", true, &said), TrainOutcome::finished);
  EXPECT_NE(said.find("does not say which tokens it was trained on"), std::string::npos) << said;
  expect_equal_runs(home_ / "whole", home_ / "run", 8);
}

TEST(Resume, AMovedRunWithItsOwnTextGoesOn) {
  const testing::TemporaryFolder folder;
  const fs::path home = folder.path() / "home", moved = folder.path() / "moved";
  fs::create_directories(home);
  const std::vector<std::string> keys = {"checkpoint.every=4", "checkpoint.keep=0"};
  train_tiny(tiny_run_config(home, keys), home / "run");
  fs::remove_all(checkpoint_path(home / "run", 8));
  fs::rename(home, moved);
  EXPECT_EQ(train_tiny(tiny_run_config(moved, keys), moved / "run", true), TrainOutcome::finished);
}

}  // namespace
}  // namespace filigree
