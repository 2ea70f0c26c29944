#include "sparsity/plan.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace filigree {
namespace {

void slow() {
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
}
void fast() {}

const std::unique_ptr<Device> kDevice = Device::cpu();

TEST(PlanTable, TakesTheFasterOnceAndKeepsIt) {
  PlanTable table(true);
  EXPECT_EQ(table.choose(*kDevice, "a", {slow, fast, 3}), Backend::dense);
  EXPECT_EQ(table.choose(*kDevice, "b", {fast, slow, 3}), Backend::sparse);
  EXPECT_EQ(table.entries().at("a").algorithm, -1);
  EXPECT_EQ(table.entries().at("b").algorithm, 3);
  EXPECT_GT(table.entries().at("a").sparse_ms, table.entries().at("a").dense_ms);
  int calls = 0;
  const auto counted = [&] { ++calls; };
  EXPECT_EQ(table.choose(*kDevice, "a", {counted, counted}), Backend::dense);
  EXPECT_EQ(calls, 0) << "a known product is not timed again";
}

TEST(PlanTable, WithoutTimingAFixedRuleChooses) {
  PlanTable table(false);
  int calls = 0;
  const auto counted = [&] { ++calls; };
  EXPECT_EQ(table.choose(*kDevice, "a", {counted, counted}), Backend::sparse);
  EXPECT_EQ(calls, 0);
}

TEST(PlanTable, StoredChoicesAreTaken) {
  PlanTable table(true);
  table.restore({{"a", {Backend::dense, 1.0, 2.0}}});
  EXPECT_EQ(table.choose(*kDevice, "a", {fast, slow}), Backend::dense);
}

TEST(PlanTable, WithoutASparseKernelTheDenseOneServesUntimed) {
  for (const bool timing : {true, false}) {
    PlanTable table(timing);
    int calls = 0;
    EXPECT_EQ(table.choose(*kDevice, "a", {nullptr, [&] { ++calls; }}), Backend::dense);
    EXPECT_EQ(calls, 0);
    // A stored choice that is not there any more is made anew.
    table.restore({{"a", {.backend = Backend::sparse, .algorithm = 5}}});
    EXPECT_EQ(table.choose(*kDevice, "a", {nullptr, fast}), Backend::dense);
    EXPECT_EQ(table.entries().at("a").backend, Backend::dense);
  }
}

TEST(PlanTable, DenseChoicesSayWhy) {
  PlanTable table(true);
  table.restore({{"stored", {.backend = Backend::dense}}});
  table.choose(*kDevice, "stored", {fast, fast});
  table.choose(*kDevice, "slow", {slow, fast});
  table.choose(*kDevice, "quick", {fast, slow});
  table.choose(*kDevice, "refused", {.sparse = nullptr, .dense = fast, .refusal = "a reason"});
  const std::string text = dense_choices(table.entries());
  EXPECT_NE(text.find("\n  stored: so its checkpoint says"), std::string::npos) << text;
  EXPECT_NE(text.find("\n  slow: the dense product is faster, "), std::string::npos) << text;
  EXPECT_NE(text.find("\n  refused: a reason"), std::string::npos) << text;
  EXPECT_EQ(text.find("quick"), std::string::npos) << text;
  // A stored choice gets its reason when it is asked for again.
  table.restore({{"refused", {.backend = Backend::dense}}});
  table.choose(*kDevice, "refused", {.sparse = nullptr, .dense = fast, .refusal = "a reason"});
  EXPECT_EQ(dense_choices(table.entries()), "\n  refused: a reason");
}

TEST(PlanTable, StoredChoicesDescribeALayer) {
  const std::map<std::string, PlanEntry> here = {{plan_key("forward", "8x8", 4, false), {}},
                                                 {plan_key("dx", "8x8", 4, false), {.backend = Backend::dense}},
                                                 {plan_key("dw", "8x8", 4, false), {}}};
  EXPECT_EQ(stored_backends(here, "8x8", 4, Mode::training), "forward sparse, dx dense-after-unpack, dw sparse");
  EXPECT_EQ(stored_backends(here, "8x8", 4, Mode::inference), "forward sparse");
  EXPECT_EQ(stored_backends(here, "8x8", 5, Mode::training), "");
  std::map<std::string, PlanEntry> both = here;
  for (const char* product : {"forward", "dx"}) both[plan_key(product, "8x8", 4, true)] = {.algorithm = 3};
  EXPECT_EQ(stored_backends(both, "8x8", 4, Mode::training),
            "forward sparse, dx dense-after-unpack, dw sparse; on a GPU forward sparse, dx sparse, dw "
            "dense-after-unpack");
}

TEST(PlanEntry, TextKeepsBackendAndAlgorithm) {
  for (const PlanEntry& entry : {PlanEntry{}, PlanEntry{.backend = Backend::dense}, PlanEntry{.algorithm = 17}}) {
    const std::optional<PlanEntry> again = plan_entry_of(to_text(entry));
    ASSERT_TRUE(again.has_value());
    EXPECT_EQ(again->backend, entry.backend);
    EXPECT_EQ(again->algorithm, entry.algorithm);
  }
  EXPECT_EQ(to_text({.algorithm = 17}), "sparse, algorithm 17");
  for (const char* text : {"", "fast", "sparse, algorithm ", "sparse, algorithm 1x", "sparse, algorithm -1"})
    EXPECT_FALSE(plan_entry_of(text).has_value()) << text;
}

}  // namespace
}  // namespace filigree
