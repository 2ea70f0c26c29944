#include "benchmark/results.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "benchmark/timing.h"
#include "support.h"

namespace filigree {
namespace {

ResultRow row(const char* method, const char* metric, double median) {
  return {.name = "case",
          .method = method,
          .config = {.precision = "fp32"},
          .metric = metric,
          .measured = {median, median, median},
          .baseline = ""};
}

TEST(Results, RatiosAboveOneAreBetter) {
  std::vector<ResultRow> rows = {row("dense", "step_ms", 10),       row("slope", "step_ms", 8),
                                 row("dense", "tokens_per_s", 100), row("slope", "tokens_per_s", 125),
                                 row("dense", "peak_bytes", 1000),  row("slope", "peak_bytes", 600),
                                 row("slope", "prefill_ms", 5)};
  compare_with(rows, "dense");
  EXPECT_DOUBLE_EQ(rows[1].ratio, 1.25);
  EXPECT_DOUBLE_EQ(rows[3].ratio, 1.25);
  EXPECT_DOUBLE_EQ(rows[5].ratio, 0.6);  // bytes: the plain quotient
  EXPECT_EQ(rows[0].baseline, "");
  EXPECT_EQ(rows[6].baseline, "") << "no twin";
  std::vector<ResultRow> other = {row("dense", "step_ms", 10), row("slope", "step_ms", 8)};
  other[1].config.batch = 2;
  compare_with(other, "dense");
  EXPECT_EQ(other[1].baseline, "") << "another configuration is no twin";
}

TEST(Results, AFileGrowsAndReplacesItsOwnRows) {
  const testing::TemporaryFolder folder;
  const auto file = folder.path() / "results.json";
  write_results(file, {.device = "first", .command = "a"}, {row("dense", "step_ms", 10), row("slope", "step_ms", 8)});
  write_results(file, {.device = "second", .command = "b"},
                {row("slope", "step_ms", 7), row("slope", "prefill_ms", 1)});
  const auto json = nlohmann::json::parse(std::ifstream(file));
  ASSERT_EQ(json.at("rows").size(), 3u);
  EXPECT_EQ(json.at("rows").at(0).at("device"), "first");
  EXPECT_EQ(json.at("rows").at(1).at("median"), 7);
  EXPECT_EQ(json.at("rows").at(1).at("device"), "second");
  for (const char* key : {"device", "driver", "libraries", "commit", "command"}) EXPECT_TRUE(json.contains(key)) << key;
  for (const char* key : {"case", "method", "config", "metric", "median", "min", "max", "baseline", "ratio", "device",
                          "libraries", "commit", "command"})
    EXPECT_TRUE(json.at("rows").at(2).contains(key)) << key;
}

TEST(Results, DenseRowsStandBesideAPeers) {
  const testing::TemporaryFolder folder;
  const auto file = folder.path() / "results.json";
  write_results(file, {.device = "d", .command = "peer"}, {row("pytorch", "step_ms", 12)});
  write_results(file, {.device = "d", .command = "ours"}, {row("dense", "step_ms", 10), row("dense", "prefill_ms", 1)});
  const auto json = nlohmann::json::parse(std::ifstream(file));
  EXPECT_EQ(json.at("rows").at(1).at("baseline"), "pytorch");
  EXPECT_DOUBLE_EQ(json.at("rows").at(1).at("ratio").get<double>(), 1.2);
  EXPECT_EQ(json.at("rows").at(2).at("baseline"), "");
}

TEST(Results, SettingsThatDifferAreRowsOfTheirOwn) {
  const testing::TemporaryFolder folder;
  const auto file = folder.path() / "results.json";
  ResultRow peer = row("pytorch", "step_ms", 12), same = row("dense", "step_ms", 10), other = same, threads = same;
  peer.config.vocab = same.config.vocab = 50257;
  other.config.vocab = 50304;
  threads.config.vocab = 50257;
  threads.config.threads = 1;
  write_results(file, {.device = "d", .command = "peer"}, {peer});
  write_results(file, {.device = "d", .command = "ours"}, {same, other, threads});
  // As another program may write it: the same config in another order.
  auto json = nlohmann::ordered_json::parse(std::ifstream(file));
  ASSERT_EQ(json.at("rows").size(), 4u);
  auto& config = json.at("rows").at(0).at("config");
  nlohmann::ordered_json turned = {{"vocab", 50257}};
  turned.update(config);
  config = turned;
  std::ofstream(file) << json;
  write_results(file, {.device = "d", .command = "again"}, {same});
  json = nlohmann::ordered_json::parse(std::ifstream(file));
  ASSERT_EQ(json.at("rows").size(), 4u);
  EXPECT_EQ(json.at("rows").at(1).at("baseline"), "pytorch");
  EXPECT_EQ(json.at("rows").at(2).at("baseline"), "") << "another vocabulary";
  EXPECT_EQ(json.at("rows").at(3).at("baseline"), "") << "another number of threads";
}

TEST(Results, OtherFilesAreRefused) {
  const testing::TemporaryFolder folder;
  const auto file = folder.path() / "precious.json";
  std::ofstream(file) << "{\"my\": 1}";
  EXPECT_THROW(write_results(file, {.device = "", .command = ""}, {row("dense", "step_ms", 1)}), UserError);
  EXPECT_EQ(nlohmann::json::parse(std::ifstream(file)).at("my"), 1);
}

TEST(Results, AFileIsCheckedBeforeAnythingIsMeasured) {
  const testing::TemporaryFolder folder;
  const auto refusal = [](const std::filesystem::path& file) {
    try {
      check_results_file(file);
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refusal(""), "");
  EXPECT_EQ(refusal(folder.path() / "new.json"), "");
  EXPECT_NE(refusal(folder.path() / "nowhere" / "new.json").find("there is no folder"), std::string::npos);
  EXPECT_NE(refusal(folder.path()), "");
  std::ofstream(folder.path() / "text.json") << "notes";
  EXPECT_NE(refusal(folder.path() / "text.json").find("no file of benchmark results"), std::string::npos);
  std::ofstream(folder.path() / "odd.json") << R"({"rows": [{"method": "dense"}]})";
  const std::string odd = refusal(folder.path() / "odd.json");
  EXPECT_NE(odd.find("odd.json: row 1"), std::string::npos) << odd;
}

TEST(Timing, MedianOfOddAndEvenCounts) {
  EXPECT_EQ(measured({3, 1, 2}).median, 2);
  EXPECT_EQ(measured({4, 1, 2, 3}).median, 2.5);
  EXPECT_EQ(measured({3, 1, 2}).max, 3);
  int first = 0, second = 0;
  const auto times = time_in_turn({[&] { ++first; }, [&] { EXPECT_EQ(++second, first); }}, 4);
  EXPECT_EQ(first, 5);
  EXPECT_EQ(times.size(), 2u);
}

}  // namespace
}  // namespace filigree
