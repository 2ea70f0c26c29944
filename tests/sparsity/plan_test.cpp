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

TEST(PlanTable, TakesTheFasterOnceAndKeepsIt) {
  PlanTable table(true);
  EXPECT_EQ(table.choose("a", slow, fast), Backend::dense);
  EXPECT_EQ(table.choose("b", fast, slow), Backend::sparse);
  EXPECT_GT(table.entries().at("a").sparse_ms, table.entries().at("a").dense_ms);
  int calls = 0;
  const auto counted = [&] { ++calls; };
  EXPECT_EQ(table.choose("a", counted, counted), Backend::dense);
  EXPECT_EQ(calls, 0) << "a known product is not timed again";
}

TEST(PlanTable, WithoutTimingAFixedRuleChooses) {
  PlanTable table(false);
  int calls = 0;
  const auto counted = [&] { ++calls; };
  EXPECT_EQ(table.choose("a", counted, counted), Backend::sparse);
  EXPECT_EQ(calls, 0);
}

TEST(PlanTable, StoredChoicesAreTaken) {
  PlanTable table(true);
  table.restore({{"a", {Backend::dense, 1.0, 2.0}}});
  EXPECT_EQ(table.choose("a", fast, slow), Backend::dense);
}

}  // namespace
}  // namespace filigree
