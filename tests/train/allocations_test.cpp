// The promise that the training loop allocates nothing after the first step of a phase, kept by the whole Trainer: with
// evaluations, checkpoints, console lines and metrics between the steps.
#include <functional>

#include "tiny_run.h"

namespace filigree {
namespace {

// What an evaluation asks for and gives back: its batch of tokens and of targets.
constexpr std::int64_t kOfAnEvaluation = 2;

// The console's text as a run writes it: every flush is a line, and is told at once.
class LineStream : public std::stringbuf {
 public:
  explicit LineStream(std::function<void(const std::string&)> on_line) : on_line_(std::move(on_line)) {}

 protected:
  int sync() override {
    on_line_(str());
    str("");
    return 0;
  }

 private:
  std::function<void(const std::string&)> on_line_;
};

struct Scenario {
  const char* name;
  std::vector<std::string> keys;
  std::vector<std::int64_t> phases;  // first steps of phases, counted from 1
};

void PrintTo(const Scenario& scenario, std::ostream* out) {
  *out << scenario.name;
}

class Allocations : public ::testing::TestWithParam<Scenario> {};

TEST_P(Allocations, NoneAfterTheFirstStepOfAPhase) {
  const testing::TemporaryFolder folder;
  std::vector<std::string> keys = GetParam().keys;
  for (const char* key : {"train.steps=12", "log.every=1", "eval.every=5", "checkpoint.every=3", "checkpoint.keep=0"})
    keys.emplace_back(key);

  struct Reading {
    std::int64_t allocations = 0, bytes = 0, evaluations = 0;
  };
  std::vector<Reading> after;  // each step, as its line is printed: evaluation and checkpoint come behind it
  std::int64_t evaluations = 0;
  const Memory* memory = nullptr;
  LineStream lines([&](const std::string& line) {
    if (line.starts_with("eval  ")) ++evaluations;
    if (line.starts_with("step ") && line.find("/12") != std::string::npos)
      after.push_back({memory->allocations(), memory->total(), evaluations});
  });
  std::ostream out(&lines);
  Console console(out, false);
  Trainer trainer(testing::tiny_run_config(folder.path(), keys), {.run = folder.path() / "run"}, console);
  memory = &trainer.device().memory();
  ASSERT_EQ(trainer.run(), TrainOutcome::finished);

  ASSERT_EQ(after.size(), 12u);
  EXPECT_EQ(after.back().evaluations, 2);
  EXPECT_TRUE(std::filesystem::exists(checkpoint_path(folder.path() / "run", 9)));
  for (std::size_t step = 2; step <= after.size(); ++step) {
    const auto& phases = GetParam().phases;
    if (std::find(phases.begin(), phases.end(), static_cast<std::int64_t>(step)) != phases.end()) continue;
    const Reading &before = after[step - 2], &now = after[step - 1];
    EXPECT_EQ(now.allocations - before.allocations, kOfAnEvaluation * (now.evaluations - before.evaluations))
        << "step " << step;
    EXPECT_EQ(now.bytes, before.bytes) << "step " << step;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Scenarios, Allocations,
    ::testing::Values(
        Scenario{"dense", {"weights.method=dense"}, {}},
        Scenario{"dense_bf16", {"weights.method=dense", "run.precision=bf16"}, {}},
        Scenario{"slope_with_adapters", {"adapters.rank=4", "adapters.start=0"}, {}},
        Scenario{"slope_with_adapters_bf16",
                 {"adapters.rank=4", "adapters.start=0", "run.precision=bf16", "train.recompute=block"},
                 {}},
        Scenario{"kernels_chosen_by_timing", {"adapters.rank=4", "adapters.start=0", "run.deterministic=false"}, {}},
        Scenario{"phases", {"weights.start=0.25", "adapters.rank=4", "adapters.start=0.5"}, {4, 7}}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace filigree
