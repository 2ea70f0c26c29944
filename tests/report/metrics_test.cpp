// Metrics files: exact round trips, torn lines, and the cut before a resumed run goes on.
#include "report/metrics.h"

#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <fstream>
#include <sstream>

#include "core/error.h"
#include "support.h"

namespace filigree {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string contents(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file, std::ios::binary).rdbuf();
  return text.str();
}

void append_text(const std::filesystem::path& file, const std::string& text) {
  std::ofstream(file, std::ios::binary | std::ios::app) << text;
}

StepMetrics step_metrics(std::int64_t step) {
  StepMetrics metrics;
  metrics.step = step;
  metrics.tokens = step * 1024;
  metrics.loss = 1.0 / static_cast<double>(step);
  metrics.lr = 1e-3;
  metrics.grad_norm = 0.5;
  metrics.step_ms = 12.25;
  metrics.tokens_per_s = 83591.8;
  return metrics;
}

std::vector<std::int64_t> steps_of(const std::filesystem::path& file) {
  std::vector<std::int64_t> steps;
  for (const StepMetrics& metrics : read_step_metrics(file)) steps.push_back(metrics.step);
  return steps;
}

TEST(Metrics, WritesOneObjectALineWithFixedKeyOrder) {
  const testing::TemporaryFolder folder;
  const auto file = folder.path() / "metrics.jsonl";
  MetricsWriter writer(file);
  writer.append(step_metrics(2));
  writer.append(EvalMetrics{2, "a \"task\"", {{"loss", 3.5}, {"bits_per_byte", 1.25}}});
  // Read while the writer is open: every line has been flushed.
  EXPECT_EQ(contents(file),
            "{\"step\":2,\"tokens\":2048,\"loss\":0.5,\"lr\":0.001,\"grad_norm\":0.5,\"step_ms\":12.25,"
            "\"tokens_per_s\":83591.8}\n"
            "{\"step\":2,\"task\":\"a \\\"task\\\"\",\"loss\":3.5,\"bits_per_byte\":1.25}\n");
}

TEST(Metrics, NumbersReadBackToTheSameBits) {
  const testing::TemporaryFolder folder;
  const auto file = folder.path() / "metrics.jsonl";
  std::vector<double> values = {0.0,
                                -0.0,
                                0.1,
                                1.0 / 3,
                                5e-324,
                                1.7976931348623157e308,
                                2.2250738585072014e-308,
                                9007199254740993.0,
                                1e22,
                                -1e-7,
                                123456789.125,
                                18446744073709551616.0};
  const Random random(7, RandomPurpose::test);
  while (values.size() < 500) {
    const double value = std::bit_cast<double>(random.u64(values.size()));
    if (std::isfinite(value))
      values.push_back(value);
    else
      values.push_back(static_cast<double>(random.uniform(values.size())));
  }
  {
    MetricsWriter writer(file);
    for (const double value : values) {
      StepMetrics metrics = step_metrics(1);
      metrics.loss = value;
      metrics.grad_norm = value;
      writer.append(metrics);
    }
  }
  const auto lines = read_step_metrics(file);
  ASSERT_EQ(lines.size(), values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(std::bit_cast<std::uint64_t>(lines[i].loss), std::bit_cast<std::uint64_t>(values[i])) << values[i];
    EXPECT_EQ(std::bit_cast<std::uint64_t>(lines[i].grad_norm), std::bit_cast<std::uint64_t>(values[i]));
  }
}

TEST(Metrics, ValuesThatAreNotFiniteReadBackAsNan) {
  const testing::TemporaryFolder folder;
  const auto file = folder.path() / "metrics.jsonl";
  StepMetrics metrics = step_metrics(1);
  metrics.loss = std::numeric_limits<double>::quiet_NaN();
  metrics.grad_norm = std::numeric_limits<double>::infinity();
  MetricsWriter(file).append(metrics);
  EXPECT_THAT(contents(file), HasSubstr("\"loss\":null,\"lr\":0.001,\"grad_norm\":null"));
  const auto lines = read_step_metrics(file);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_TRUE(std::isnan(lines[0].loss));
  EXPECT_TRUE(std::isnan(lines[0].grad_norm));
  EXPECT_EQ(lines[0].lr, 1e-3);
}

TEST(Metrics, EvaluationsReadBack) {
  const testing::TemporaryFolder folder;
  const auto file = folder.path() / "eval.jsonl";
  MetricsWriter(file).append(EvalMetrics{40, "perplexity", {{"loss", 2.5}, {"perplexity", 12.182493960703473}}});
  const auto lines = read_eval_metrics(file);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].step, 40);
  EXPECT_EQ(lines[0].task, "perplexity");
  EXPECT_EQ(find_value(lines[0].values, "perplexity"), 12.182493960703473);
  EXPECT_EQ(find_value(lines[0].values, "accuracy"), std::nullopt);
}

TEST(Metrics, MissingFileHasNoLines) {
  const testing::TemporaryFolder folder;
  EXPECT_TRUE(read_step_metrics(folder.path() / "metrics.jsonl").empty());
  truncate_after(folder.path() / "metrics.jsonl", 3);
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "metrics.jsonl"));
}

TEST(Metrics, TornLastLineIsSkippedByTheReaderAndCutByTheWriter) {
  const testing::TemporaryFolder folder;
  const auto file = folder.path() / "metrics.jsonl";
  {
    MetricsWriter writer(file);
    for (std::int64_t step = 1; step <= 3; ++step) writer.append(step_metrics(step));
  }
  const std::string whole = contents(file);
  // Torn inside the object, and torn between the object and its newline: neither line was finished.
  for (const std::string torn : {"{\"step\":4,\"tok", "{\"step\":4,\"tokens\":4096}"}) {
    append_text(file, torn);
    EXPECT_THAT(steps_of(file), ElementsAre(1, 2, 3));
    { const MetricsWriter writer(file); }
    EXPECT_EQ(contents(file), whole);
  }
  append_text(file, std::string(10'000, ' '));  // longer than the block that the file is searched in
  MetricsWriter(file).append(step_metrics(4));
  EXPECT_THAT(steps_of(file), ElementsAre(1, 2, 3, 4));
}

TEST(Metrics, FileOfOneTornLineBecomesEmpty) {
  const testing::TemporaryFolder folder;
  const auto file = folder.path() / "metrics.jsonl";
  append_text(file, "{\"step\":1");
  MetricsWriter(file).append(step_metrics(1));
  EXPECT_THAT(steps_of(file), ElementsAre(1));
}

TEST(Metrics, DamagedLineIsNamed) {
  const testing::TemporaryFolder folder;
  const auto file = folder.path() / "metrics.jsonl";
  for (const std::string damage : {"not json\n", "[1]\n", "{\"step\":\"two\"}\n", "{\"step\":2,\"loss\":\"x\"}\n"}) {
    std::filesystem::remove(file);
    MetricsWriter(file).append(step_metrics(1));
    append_text(file, damage);
    try {
      read_step_metrics(file);
      ADD_FAILURE() << "accepted " << damage;
    } catch (const UserError& error) {
      EXPECT_THAT(error.what(), HasSubstr("metrics.jsonl:2: "));
    }
  }
}

TEST(Metrics, DamageBehindWhatIsKeptIsCutOff) {
  const testing::TemporaryFolder folder;
  const auto file = folder.path() / "metrics.jsonl";
  {
    MetricsWriter writer(file);
    for (std::int64_t step = 1; step <= 3; ++step) writer.append(step_metrics(step));
  }
  append_text(file, std::string(100, '\0') + "\n{\"step\":4,\"loss\":1}\n");  // as a power cut may leave it
  EXPECT_THROW(truncate_after(file, 4), UserError) << "a line may be missing";
  truncate_after(file, 3);
  EXPECT_THAT(steps_of(file), ElementsAre(1, 2, 3));
  append_text(file, "{\"step\":4,\"loss\":1}\nnot json\n");
  truncate_after(file, 2);
  EXPECT_THAT(steps_of(file), ElementsAre(1, 2));
  std::ofstream(file) << "not json\n";
  truncate_after(file, 0);
  EXPECT_EQ(contents(file), "");
}

TEST(Metrics, TruncateAfterKeepsUpToTheStepAndGivesTheSameBytesWhenRewritten) {
  const testing::TemporaryFolder folder;
  const auto file = folder.path() / "metrics.jsonl";
  {
    MetricsWriter writer(file);
    for (std::int64_t step = 1; step <= 6; ++step) writer.append(step_metrics(step));
  }
  const std::string whole = contents(file);
  append_text(file, "{\"step\":7");
  truncate_after(file, 6);
  EXPECT_EQ(contents(file), whole);
  truncate_after(file, 4);
  EXPECT_THAT(steps_of(file), ElementsAre(1, 2, 3, 4));
  {
    MetricsWriter writer(file);
    for (std::int64_t step = 5; step <= 6; ++step) writer.append(step_metrics(step));
  }
  EXPECT_EQ(contents(file), whole);
  truncate_after(file, 0);
  EXPECT_EQ(contents(file), "");
}

TEST(Metrics, RepeatedKeyIsRefused) {
  const testing::TemporaryFolder folder;
  MetricsWriter writer(folder.path() / "metrics.jsonl");
  EXPECT_THROW(writer.append(EvalMetrics{1, "perplexity", {{"step", 1.0}}}), Error);
  EXPECT_THROW(writer.append(EvalMetrics{1, "{\"loss\":", {{"loss", 1.0}, {"loss", 2.0}}}), Error);
  writer.append(EvalMetrics{1, "{\"loss\":", {{"loss", 1.0}}});  // a text that looks like a key is not one
}

TEST(Metrics, UnwritableFileIsNamed) {
  const testing::TemporaryFolder folder;
  try {
    MetricsWriter writer(folder.path() / "missing" / "metrics.jsonl");
    ADD_FAILURE() << "opened a file in a folder that does not exist";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("missing/metrics.jsonl"));
  }
}

}  // namespace
}  // namespace filigree
