// Every exchange trains with every weight method that it goes with, on several ranks, and stops and goes on.
#include <cmath>
#include <cstring>

#include "comm/agreement.h"
#include "comm/virtual_ranks.h"
#include "report/model_summary.h"
#include "tiny_run.h"
#include "train/exchange_state.h"

namespace filigree {
namespace {

namespace fs = std::filesystem;
using testing::file_bytes;
using testing::tiny_run_config;

TrainOutcome train_ranks(int ranks, const Config& config, const fs::path& run, bool resume = false) {
  TrainOutcome outcome{};
  run_virtual_ranks(ranks, [&](Communicator& communicator) {
    std::ostringstream nowhere;
    Console console(nowhere, false);
    Trainer trainer(config, {.run = run, .resume = resume, .ranks = &communicator, .threads = 1}, console);
    const TrainOutcome own = trainer.run();
    if (communicator.is_first()) outcome = own;
  });
  return outcome;
}

struct Combination {
  const char* weights;
  const char* exchange;
  std::vector<std::string> keys;
};

std::vector<Combination> combinations() {
  std::vector<Combination> all;
  for (const char* weights : {"dense", "slope", "block"}) {
    all.push_back({weights, "radius", {"gradients.mode=faithful", "gradients.range=2", "gradients.density=0.1"}});
    for (const char* flush : {"sum", "split", "spread", "frozen_v"})
      all.push_back({weights, "radius", {std::string("gradients.flush=") + flush, "gradients.stagger=true"}});
    all.push_back({weights, "topk", {"gradients.density=0.05", "gradients.warmup=2"}});
    all.push_back({weights, "randomk", {}});
  }
  all.push_back({"dense", "powersgd", {"gradients.rank=2"}});
  return all;
}

TEST(Exchanges, TrainWithEachWeightMethodAndResumeWithEqualBits) {
  for (const Combination& one : combinations()) {
    const testing::TemporaryFolder folder;
    std::vector<std::string> keys = {std::string("weights.method=") + one.weights,
                                     "weights.block=16x16",
                                     std::string("gradients.exchange=") + one.exchange,
                                     "gradients.interval=3",
                                     "gradients.start=0.25",
                                     "train.micro_batch=2",
                                     "checkpoint.every=5",
                                     "checkpoint.keep=0"};
    keys.insert(keys.end(), one.keys.begin(), one.keys.end());
    const Config config = tiny_run_config(folder.path(), keys);
    const std::string what = std::string(one.weights) + ", " + one.exchange + " " + one.keys.front();
    const fs::path run = folder.path() / "run";
    ASSERT_EQ(train_ranks(2, config, run), TrainOutcome::finished) << what;
    const auto steps = read_step_metrics(run / "metrics.jsonl");
    ASSERT_EQ(steps.size(), 8u);
    EXPECT_LT(steps.back().loss, steps.front().loss) << what;

    std::vector<std::string> expected;
    for (const char* file : {"model.safetensors", "optimizer.safetensors", "state.json"})
      expected.push_back(file_bytes(checkpoint_path(run, 8) / file));
    fs::remove_all(checkpoint_path(run, 8));
    ASSERT_EQ(train_ranks(2, config, run, true), TrainOutcome::finished) << what;
    std::size_t index = 0;
    for (const char* file : {"model.safetensors", "optimizer.safetensors", "state.json"})
      EXPECT_TRUE(file_bytes(checkpoint_path(run, 8) / file) == expected[index++]) << what << ": " << file;
  }
}

TEST(Exchanges, RadiusOfDensityOneTrainsLikeDense) {
  const testing::TemporaryFolder folder;
  for (const char* weights : {"dense", "slope", "block"}) {
    const std::vector<std::string> keys = {std::string("weights.method=") + weights, "weights.block=16x16",
                                           "train.micro_batch=2", "gradients.density=1", "gradients.interval=3"};
    std::vector<std::string> radius = keys;
    radius.push_back("gradients.exchange=radius");
    const fs::path a = folder.path() / (std::string("dense-") + weights), b = folder.path() / weights;
    train_ranks(2, tiny_run_config(folder.path(), keys), a);
    train_ranks(2, tiny_run_config(folder.path(), radius), b);
    EXPECT_TRUE(file_bytes(checkpoint_path(a, 8) / "model.safetensors") ==
                file_bytes(checkpoint_path(b, 8) / "model.safetensors"))
        << weights;
  }
}

TEST(Exchanges, AResidualGoesOnWithAnotherNumberOfRanks) {
  const testing::TemporaryFolder folder;
  const Config config =
      tiny_run_config(folder.path(), {"train.micro_batch=2", "gradients.exchange=radius", "gradients.interval=100",
                                      "gradients.start=0.25", "checkpoint.every=5"});
  const fs::path run = folder.path() / "run";
  train_ranks(4, config, run);
  fs::remove_all(checkpoint_path(run, 8));
  ASSERT_EQ(train_ranks(2, config, run, true), TrainOutcome::finished);
  EXPECT_EQ(read_step_metrics(run / "metrics.jsonl").size(), 8u);
}

// A checkpoint that follows a step that was left out holds nothing of it.
TEST(Exchanges, WhatASkippedStepLeftIsInNoCheckpoint) {
  for (const char* exchange : {"radius", "topk", "randomk", "powersgd"}) {
    const testing::TemporaryFolder folder;
    const Config config = tiny_run_config(
        folder.path(),
        {std::string("gradients.exchange=") + exchange, "gradients.start=0", "gradients.interval=100",
         "train.micro_batch=2", "train.lr=1e30", "train.warmup=0", "train.clip=0", "train.schedule=constant",
         "train.on_nonfinite=skip", "train.steps=40", "eval.every=0", "checkpoint.every=1", "checkpoint.keep=0"});
    const fs::path run = folder.path() / "run";
    EXPECT_THROW(train_ranks(2, config, run), Diverged);
    const auto last = newest_checkpoint(run);
    ASSERT_TRUE(last.has_value());
    EXPECT_GT(CheckpointReader(*last).state().skipped, 0);
    const SafetensorsFile file(*last / kExchangeFile);
    for (const StoredTensor& tensor : file.tensors()) {
      if (tensor.type != StoredType::f32) continue;
      const auto bytes = file.bytes(tensor);
      for (std::size_t at = 0; at < bytes.size(); at += sizeof(float)) {
        float value = 0.0f;
        std::memcpy(&value, bytes.data() + at, sizeof value);
        ASSERT_TRUE(std::isfinite(value)) << exchange << ": " << tensor.name;
      }
    }
  }
}

}  // namespace
}  // namespace filigree
