// Tiny runs on several ranks, which are threads of one process.
#pragma once

#include <functional>

#include "comm/virtual_ranks.h"
#include "tiny_run.h"

namespace filigree::testing {

// Trains on `ranks` ranks; what the first one's console says goes to `said`.
inline TrainOutcome train_ranks(int ranks, const Config& config, const std::filesystem::path& run, bool resume = false,
                                std::string* said = nullptr, const std::function<Config(int, Config)>& change = {}) {
  TrainOutcome outcome{};
  std::ostringstream out;
  run_virtual_ranks(ranks, [&](Communicator& communicator) {
    std::ostringstream nowhere;
    Console console(communicator.is_first() ? out : nowhere, false);
    Trainer trainer(change ? change(communicator.rank(), config) : config,
                    {.run = run, .resume = resume, .ranks = &communicator, .threads = 1}, console);
    const TrainOutcome own = trainer.run();
    if (communicator.is_first()) outcome = own;
    EXPECT_EQ(nowhere.str().find("warning"), std::string::npos) << nowhere.str();
  });
  if (said) *said = out.str();
  return outcome;
}

// Two runs whose sums are taken in another order stay this near for a few steps: every difference begins as a rounding,
// 2^-24 of a value, and a step of AdamW from the start can make it some hundred times as large where a gradient is
// hardly more than its rounding.
inline constexpr double kNear = 2e-4;

inline void expect_near_runs(const std::filesystem::path& a, const std::filesystem::path& b, std::size_t steps) {
  const auto left = read_step_metrics(a / "metrics.jsonl"), right = read_step_metrics(b / "metrics.jsonl");
  ASSERT_EQ(left.size(), steps);
  ASSERT_EQ(right.size(), steps);
  for (std::size_t i = 0; i < steps; ++i) {
    EXPECT_EQ(left[i].step, right[i].step);
    EXPECT_EQ(left[i].tokens, right[i].tokens);
    EXPECT_NEAR(left[i].loss, right[i].loss, kNear * left[i].loss) << "step " << i + 1;
    EXPECT_NEAR(left[i].grad_norm, right[i].grad_norm, 10 * kNear * left[i].grad_norm) << "step " << i + 1;
  }
  const auto before = read_eval_metrics(a / "eval.jsonl"), after = read_eval_metrics(b / "eval.jsonl");
  ASSERT_EQ(before.size(), after.size());
  for (std::size_t i = 0; i < before.size(); ++i)
    EXPECT_NEAR(*find_value(before[i].values, "loss"), *find_value(after[i].values, "loss"), kNear * 6);
}

}  // namespace filigree::testing
