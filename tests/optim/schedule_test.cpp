#include "optim/schedule.h"

#include <gtest/gtest.h>

namespace filigree {
namespace {

TEST(LearningRate, WarmsUpThenDecaysToItsFloor) {
  TrainConfig train;
  train.steps = 110;
  train.warmup = 10;
  train.lr = 2.0;
  train.min_lr = 0.1;
  EXPECT_DOUBLE_EQ(learning_rate(train, 0), 0.2);
  EXPECT_DOUBLE_EQ(learning_rate(train, 9), 2.0);
  EXPECT_DOUBLE_EQ(learning_rate(train, 10), 2.0);
  EXPECT_NEAR(learning_rate(train, 60), 1.1, 1e-12);  // half of a cosine: midway between 2 and 0.2
  EXPECT_NEAR(learning_rate(train, 110), 0.2, 1e-12);
  train.schedule = "linear";
  EXPECT_NEAR(learning_rate(train, 35), 2.0 - 0.25 * 1.8, 1e-12);
  train.schedule = "constant";
  EXPECT_DOUBLE_EQ(learning_rate(train, 100), 2.0);
}

TEST(LearningRate, AdaptersAreRewarmedAtInsertion) {
  Config config;
  config.train.steps = 1000;
  config.train.lr = 1e-3;
  config.adapters.start = 0.9;
  config.adapters.rewarm = 0.3;
  EXPECT_EQ(phase_start(config.train, config.adapters.start), 900);
  EXPECT_DOUBLE_EQ(adapter_learning_rate(config, 900, 900), 3e-4);
  EXPECT_NEAR(adapter_learning_rate(config, 900, 950), 1.5e-4, 1e-12);
  EXPECT_DOUBLE_EQ(adapter_learning_rate(config, 900, 1000), 0.0);
}

}  // namespace
}  // namespace filigree
