#include "eval/task_scores.h"

#include <cmath>

#include "eval/harness_json.h"
#include "eval/task_support.h"
#include "kernels/elementwise/elementwise.h"
#include "model/tiny_models.h"

namespace filigree {
namespace {

Likelihood of(double log, bool greedy = false) {
  return {log, greedy};
}

TEST(TaskScores, ChoicesAreComparedWholeAndByLength) {
  // Choices of 2, 4 (5 bytes) and 10 characters.
  const EvalTask task =
      testing::task_of("mine", R"({"query": "q", "choices": ["ab", "abc\u00e9", "abcdefghij"], "gold": 1})"
                               "\n"
                               R"({"query": "q", "choices": ["ab", "abc\u00e9", "abcdefghij"], "gold": 0})"
                               "\n"
                               R"({"query": "q", "choices": ["ab", "ab"], "gold": 0})"
                               "\n");
  const std::vector<Likelihood> likelihoods = {of(-3.0), of(-4.4), of(-12.0),  // whole 0; by character 1; by byte 1
                                               of(-1.9), of(-3.6), of(-20.0),  // whole 0; by character 1; by byte 1
                                               of(-2.0), of(-2.0)};            // the first of equal ones
  const TaskScore score = score_task(task, likelihoods).overall;
  EXPECT_EQ(score.items, 3);
  EXPECT_DOUBLE_EQ(score.find("acc")->value, 2.0 / 3.0);
  EXPECT_DOUBLE_EQ(score.find("acc_norm")->value, 2.0 / 3.0);
  EXPECT_DOUBLE_EQ(score.find("acc")->standard_error, std::sqrt(2.0 / 3.0 / 2.0 / 3.0));
  const std::vector<Likelihood> close = {of(-2.0), of(-4.2), of(-30.0), of(-2.0), of(-3.0), of(-30.0), of(-2), of(-2)};
  const TaskScore parted = score_task(task, close).overall;
  EXPECT_DOUBLE_EQ(parted.find("acc_norm")->value, 1.0 / 3.0) << "4.2 / 4 is more than 2 / 2";
  EXPECT_DOUBLE_EQ(parted.find("acc_bytes")->value, 2.0 / 3.0) << "4.2 / 5 is less";
}

TEST(TaskScores, ContinuationsHavePerplexityAndGreedyAccuracy) {
  const EvalTask task = testing::task_of("lambada", R"({"text": "a b"})"
                                                    "\n"
                                                    R"({"text": "a c"})"
                                                    "\n");
  const TaskScore score = score_task(task, std::vector<Likelihood>{of(-1.0, true), of(-3.0)}).overall;
  EXPECT_DOUBLE_EQ(score.find("perplexity")->value, std::exp(2.0));
  EXPECT_DOUBLE_EQ(score.find("perplexity")->standard_error, std::exp(2.0) * 1.0);
  EXPECT_DOUBLE_EQ(score.find("acc")->value, 0.5);
}

TEST(TaskScores, OfPartsAreCombinedWithOrWithoutTheirSizes) {
  EvalTask task{.name = "t", .sets = {}};
  for (const auto& [name, group, items] : {std::tuple{"t_a", "t_x", 3}, {"t_b", "t_x", 2}, {"t_c", "t_y", 2}}) {
    TaskSet& set = task.sets.emplace_back(TaskSet{name, group, {}});
    set.items.resize(static_cast<std::size_t>(items), {.requests = {{"", "a"}, {"", "b"}}});
  }
  std::vector<Likelihood> likelihoods;
  for (const bool right : {true, true, false, true, false, false, false})
    for (const double log : {right ? -1.0 : -2.0, -1.5}) likelihoods.push_back(of(log));
  const TaskResult plain = score_task(task, likelihoods);
  ASSERT_EQ(plain.groups.size(), 2u);
  EXPECT_DOUBLE_EQ(plain.groups[0].metrics[0].value, (2.0 / 3.0 + 0.5) / 2.0);
  EXPECT_DOUBLE_EQ(plain.overall.metrics[0].value, (2.0 / 3.0 + 0.5) / 3.0);
  const double a = 1.0 / 9.0, b = 0.25;  // squared standard errors of the sets
  EXPECT_DOUBLE_EQ(plain.groups[0].metrics[0].standard_error, std::sqrt(a + b) / 2.0);
  task.weighted = true;
  const TaskResult weighted = score_task(task, likelihoods);
  EXPECT_DOUBLE_EQ(weighted.overall.metrics[0].value, 3.0 / 7.0);
  EXPECT_DOUBLE_EQ(weighted.groups[0].metrics[0].standard_error, std::sqrt((2 * a * 3 + 1 * b * 2) / 3.0 / 5.0));
  EXPECT_EQ(weighted.members[0], (std::vector<std::string>{"t_a", "t_b"}));

  const nlohmann::ordered_json json = harness_results(std::vector<TaskResult>{weighted});
  EXPECT_DOUBLE_EQ(json.at("results").at("t").at("acc,none"), 3.0 / 7.0);
  EXPECT_DOUBLE_EQ(json.at("results").at("t_a").at("acc,none"), 2.0 / 3.0);
  EXPECT_DOUBLE_EQ(json.at("groups").at("t_x").at("acc,none"), 0.6);
  EXPECT_EQ(json.at("group_subtasks").at("t_x").size(), 2u);
  EXPECT_EQ(json.at("n-samples").at("t").at("effective"), 7);
  EXPECT_EQ(json.at("higher_is_better").at("t").at("acc"), true);
}

TEST(TaskScores, RequestsAreCutWhereTheContextEnds) {
  const auto tokenizer = bytes_tokenizer();
  const Continuation plain = encode_request(*tokenizer, {"ab", " c"});
  EXPECT_EQ(plain.ids, (std::vector<std::int32_t>{'a', 'b', ' ', 'c'}));
  EXPECT_EQ(plain.first, 2);
  EXPECT_EQ(encode_request(*tokenizer, {"ab \n", " c"}).first, 2) << "white space goes to the continuation";
  const Continuation bare = encode_request(*tokenizer, {"", " c"});
  EXPECT_EQ(bare.ids, (std::vector<std::int32_t>{tokenizer->end_of_text(), ' ', 'c'}));
  EXPECT_EQ(bare.first, 1);
  EXPECT_EQ(encode_request(*tokenizer, {"a", ""}).ids.size(), 2u) << "something is always scored";
}

TEST(TaskScores, SeveralTasksInOneGoAreThoseOfEachAlone) {
  const auto device = Device::cpu();
  Config config = testing::tiny_config("gpt2");
  const auto tokenizer = bytes_tokenizer();
  config.model.vocab = tokenizer->vocab_size();
  Transformer model(*device, config, Mode::inference, false);
  model.initialize(*device);
  for (Parameter* parameter : model.parameters())
    if (parameter->name() == "embedding.tokens") scale(*device, parameter->values(), 50.0f);
  Activations activations(*device, config.model, DType::f32, 3, 16, Recompute::inference);
  const std::vector<EvalTask> tasks = {
      testing::task_of("blimp", R"({"sentence_good": "One.", "sentence_bad": "Two", "linguistics_term": "x"})"),
      testing::task_of("lambada", R"({"text": "This text is far longer than the context"})"),
      testing::task_of("mine", R"({"query": "One", "choices": ["a", "bc"], "gold": 1})")};
  const std::vector<TaskResult> together = score_tasks(*device, model, activations, *tokenizer, tasks);
  ASSERT_EQ(together.size(), 3u);
  EXPECT_EQ(together[0].shortened, 0);
  EXPECT_EQ(together[1].shortened, 1);
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const TaskResult alone = score_tasks(*device, model, activations, *tokenizer, {&tasks[i], 1}).front();
    for (std::size_t m = 0; m < alone.overall.metrics.size(); ++m)
      EXPECT_NEAR(alone.overall.metrics[m].value, together[i].overall.metrics[m].value,
                  1e-4 * std::abs(alone.overall.metrics[m].value))  // a pass of another length rounds otherwise
          << tasks[i].name;
  }
}

}  // namespace
}  // namespace filigree
