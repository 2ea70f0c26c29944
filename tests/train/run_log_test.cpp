// What a run writes beside its checkpoints: rows of evaluation tasks, and events for TensorBoard that say the same as
// its JSON lines, also after it was interrupted.
#include "train/run_log.h"

#include <gmock/gmock.h>

#include "tiny_run.h"

namespace filigree {
namespace {

namespace fs = std::filesystem;
using testing::tiny_run_config;
using testing::train_tiny;

std::vector<Event> events_of(const fs::path& run) {
  return read_events(run / "tensorboard" / "events.out.tfevents.filigree");
}

void expect_events_say_the_same(const fs::path& run) {
  std::vector<std::pair<std::int64_t, float>> losses, expected;
  std::size_t histograms = 0, evaluations = 0, texts = 0;
  for (const Event& event : events_of(run)) {
    if (event.tag == "train/loss") losses.emplace_back(event.step, static_cast<float>(event.scalar));
    if (event.tag.starts_with("weights/")) EXPECT_GT(event.histogram.count, 0);
    histograms += event.tag == "density" ? 1 : 0;
    evaluations += event.tag == "mine/accuracy" ? 1 : 0;
    texts += event.tag.starts_with("samples/") || event.tag == "configuration" ? 1 : 0;
  }
  for (const StepMetrics& step : read_step_metrics(run / "metrics.jsonl"))
    expected.emplace_back(step.step, static_cast<float>(step.loss));
  EXPECT_EQ(losses, expected);
  EXPECT_EQ(histograms, 2u) << "one an evaluation";
  EXPECT_EQ(evaluations, 2u);
  EXPECT_EQ(texts, 4u);
}

TEST(RunLog, EvaluatesTasksAndWritesEvents) {
  const testing::TemporaryFolder folder;
  std::ofstream(folder.path() / "mine.jsonl") << R"({"query": "the river", "choices": ["waits", "zzz"], "gold": 0})"
                                                 "\n"
                                              << R"({"query": "the mill", "choices": ["keeps", "xyz"], "gold": 0})"
                                                 "\n";
  const std::vector<std::string> keys = {"eval.tasks=['mine']", "eval.task_data=['" + folder.path().string() + "']",
                                         "log.tensorboard=true", "checkpoint.keep=0"};
  const fs::path run = folder.path() / "run";
  std::string said;
  ASSERT_EQ(train_tiny(tiny_run_config(folder.path(), keys), run, false, &said), TrainOutcome::finished);
  const std::vector<EvalMetrics> rows = read_eval_metrics(run / "eval.jsonl");
  ASSERT_EQ(rows.size(), 4u) << "perplexity and the task, twice";
  EXPECT_EQ(rows[1].task, "mine");
  EXPECT_EQ(rows[1].step, 4);
  for (const char* name : {"accuracy", "stderr", "accuracy_norm", "stderr_norm"})
    EXPECT_TRUE(find_value(rows[1].values, name)) << name;
  EXPECT_THAT(said, ::testing::HasSubstr("mine  accuracy"));
  expect_events_say_the_same(run);

  // A run that went on after its checkpoint of step 4 and died.
  fs::remove_all(checkpoint_path(run, 8));
  fs::remove(run / "report.html");
  ASSERT_EQ(train_tiny(tiny_run_config(folder.path(), keys), run, true), TrainOutcome::finished);
  expect_events_say_the_same(run);
}

TEST(RunLog, WritesNoEventsUnasked) {
  const testing::TemporaryFolder folder;
  ASSERT_EQ(train_tiny(tiny_run_config(folder.path()), folder.path() / "run"), TrainOutcome::finished);
  EXPECT_FALSE(fs::exists(folder.path() / "run" / "tensorboard"));
}

TEST(RunLog, ATaskWithoutDataIsRefusedBeforeTheRunBegins) {
  const testing::TemporaryFolder folder;
  try {
    train_tiny(tiny_run_config(folder.path(), {"eval.tasks=['piqa']"}), folder.path() / "run");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("eval.tasks, eval.task_data: task piqa: no data for it"));
  }
  EXPECT_FALSE(fs::exists(folder.path() / "run"));
}

}  // namespace
}  // namespace filigree
