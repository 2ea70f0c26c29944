// distributed.zero: the optimizer's state shared out among the ranks changes where it lies, and nothing else.
#include "tiny_ranks.h"
#include "train/summary.h"

namespace filigree {
namespace {

namespace fs = std::filesystem;
using testing::expect_near_runs;
using testing::file_bytes;
using testing::tiny_run_config;
using testing::train_ranks;
using testing::train_tiny;

using Keys = std::vector<std::string>;

Keys with(Keys keys, const Keys& more) {
  keys.insert(keys.end(), more.begin(), more.end());
  return keys;
}

void expect_equal_checkpoints(const fs::path& a, const fs::path& b, std::int64_t step) {
  for (const char* file : {"model.safetensors", "optimizer.safetensors", "state.json"}) {
    const std::string ours = file_bytes(checkpoint_path(a, step) / file);
    EXPECT_FALSE(ours.empty());
    EXPECT_TRUE(ours == file_bytes(checkpoint_path(b, step) / file)) << step << " " << file;
  }
}

// Trains with and without, and compares what is left. Gradients are not clipped: their norm is added up otherwise.
void expect_equal_runs(int ranks, const Keys& keys, std::int64_t steps = 8) {
  const testing::TemporaryFolder folder;
  for (const char* zero : {"0", "1"})
    ASSERT_EQ(train_ranks(
                  ranks,
                  tiny_run_config(folder.path(), with({"train.clip=0", std::string("distributed.zero=") + zero}, keys)),
                  folder.path() / zero),
              TrainOutcome::finished);
  expect_equal_checkpoints(folder.path() / "0", folder.path() / "1", steps);
  const auto whole = read_step_metrics(folder.path() / "0" / "metrics.jsonl");
  const auto shared = read_step_metrics(folder.path() / "1" / "metrics.jsonl");
  ASSERT_EQ(whole.size(), shared.size());
  for (std::size_t i = 0; i < whole.size(); ++i) {
    EXPECT_EQ(whole[i].loss, shared[i].loss) << i;
    EXPECT_NEAR(whole[i].grad_norm, shared[i].grad_norm, 1e-13 * whole[i].grad_norm) << i;
  }
}

struct Case {
  const char* method;
  const char* precision;
  int ranks;
};
class ShardedMethods : public ::testing::TestWithParam<Case> {};

TEST_P(ShardedMethods, EqualsWholeStateBitForBit) {
  const auto [method, precision, ranks] = GetParam();
  expect_equal_runs(ranks, {std::string("weights.method=") + method, "weights.block=16x16",
                            std::string("run.precision=") + precision, "train.micro_batch=1"});
}

INSTANTIATE_TEST_SUITE_P(All, ShardedMethods,
                         ::testing::Values(Case{"dense", "fp32", 2}, Case{"dense", "bf16", 4}, Case{"slope", "fp32", 4},
                                           Case{"slope", "bf16", 2}, Case{"block", "fp32", 2},
                                           Case{"block", "bf16", 4}),
                         [](const auto& test) {
                           return std::string(test.param.method) + "_" + test.param.precision + "_" +
                                  std::to_string(test.param.ranks);
                         });

// Three ranks leave a rest in nearly every matrix.
TEST(Sharding, EqualsWholeStateWhereNothingDivides) {
  expect_equal_runs(3, {"train.batch_tokens=288", "train.micro_batch=1", "run.precision=bf16", "model.width=36"});
}

TEST(Sharding, EqualsWholeStateOverAllPhases) {
  for (const char* column_mask : {"dynamic", "fixed"})
    expect_equal_runs(2, {"train.micro_batch=2", "run.precision=bf16", "weights.start=0.5", "weights.mask=magnitude",
                          std::string("weights.column_mask=") + column_mask, "adapters.rank=8", "adapters.start=0.75"});
}

TEST(Sharding, EqualsWholeStateWithEachWire) {
  for (const char* precision : {"fp32", "bf16"})
    expect_equal_runs(2, {"train.micro_batch=2", std::string("run.precision=") + precision, "gradients.wire_dtype=bf16",
                          "distributed.bucket_mb=0.001"});
}

TEST(Sharding, EqualsWholeStateWithOtherExchanges) {
  for (const char* exchange : {"topk", "randomk", "powersgd"})
    expect_equal_runs(2, {"train.micro_batch=2", "weights.method=dense", "gradients.density=0.3",
                          "gradients.start=0.25", "gradients.warmup=2", std::string("gradients.exchange=") + exchange});
  expect_equal_runs(2, {"train.micro_batch=4", "model.arch=llama", "model.vocab=4096", "gradients.sparse_rows=true"});
}

TEST(Sharding, ClippedGradientsDifferByARounding) {
  const testing::TemporaryFolder folder;
  for (const char* zero : {"0", "1"})
    train_ranks(2,
                tiny_run_config(folder.path(), {"train.micro_batch=2", "train.clip=0.3", "eval.every=0",
                                                std::string("distributed.zero=") + zero}),
                folder.path() / zero);
  expect_near_runs(folder.path() / "0", folder.path() / "1", 8);
  const auto whole = read_step_metrics(folder.path() / "0" / "metrics.jsonl");
  EXPECT_GT(whole.front().grad_norm, 0.3);
  EXPECT_NEAR(whole.front().grad_norm, read_step_metrics(folder.path() / "1" / "metrics.jsonl").front().grad_norm,
              1e-13 * whole.front().grad_norm);
}

TEST(Sharding, AResumedRunEqualsTheUninterruptedOneBitForBit) {
  const testing::TemporaryFolder folder;
  const Config config =
      tiny_run_config(folder.path(), {"train.micro_batch=2", "run.precision=bf16", "weights.start=0.5",
                                      "weights.mask=magnitude", "adapters.rank=8", "adapters.start=0.75",
                                      "checkpoint.every=1", "checkpoint.keep=0", "distributed.zero=1"});
  const fs::path whole = folder.path() / "whole";
  train_ranks(2, config, whole);
  for (const std::int64_t kept : {2, 5, 7}) {
    const fs::path broken = folder.path() / std::to_string(kept);
    fs::copy(whole, broken, fs::copy_options::recursive);
    for (std::int64_t step = kept + 1; step <= 8; ++step) fs::remove_all(checkpoint_path(broken, step));
    ASSERT_EQ(train_ranks(2, config, broken, true), TrainOutcome::finished);
    expect_equal_checkpoints(whole, broken, 8);
  }
}

// A checkpoint says nothing of ranks: four of them, two, one, with shared state or without.
TEST(Sharding, ARunGoesOnWithAnotherNumberOfRanksAndWithout) {
  const testing::TemporaryFolder folder;
  const auto walk = [&](const std::string& name, const char* zero) {
    const fs::path run = folder.path() / name;
    const auto config = [&](int steps) {
      return tiny_run_config(folder.path(),
                             {"train.micro_batch=2", "train.clip=0", "run.precision=bf16", "train.schedule=constant",
                              "train.steps=" + std::to_string(steps), std::string("distributed.zero=") + zero});
    };
    EXPECT_EQ(train_ranks(4, config(3), run), TrainOutcome::finished);
    EXPECT_EQ(train_ranks(2, config(6), run, true), TrainOutcome::finished);
    EXPECT_EQ(train_tiny(config(9), run, true), TrainOutcome::finished);
    return run;
  };
  expect_equal_checkpoints(walk("whole", "0"), walk("shared", "1"), 9);
}

TEST(Sharding, EachRankHoldsItsPartOfTheState) {
  const testing::TemporaryFolder folder;
  const Config config = tiny_run_config(
      folder.path(), {"train.micro_batch=2", "run.precision=bf16", "distributed.zero=1", "train.steps=2"});
  train_ranks(4, config, folder.path() / "run");
  const ModelSummary summary = parse_model_summary(file_bytes(folder.path() / "run" / "inspect.json"));
  const auto device = Device::plan(false);
  const Config saved = read_config(folder.path() / "run" / "config.toml");
  const Transformer model(*device, saved, Mode::training, false);
  std::int64_t kept = 0, masters = 0, all = 0;
  for (const Parameter* parameter : model.parameters()) {
    const std::int64_t count = parameter->count();
    const std::int64_t share = parameter->options().shape.rank() == 1 ? count : count / 256 * 64 + count % 256;
    all += count;
    kept += share;
    masters += parameter->has_master() ? share : 0;
  }
  EXPECT_LT(static_cast<double>(kept), 0.3 * static_cast<double>(all));
  std::int64_t moments_seen = 0, masters_seen = 0, dense = 0;
  for (const MemorySummary& row : summary.memory) {
    if (row.purpose == "moments") moments_seen = row.bytes, dense = row.dense_bytes;
    if (row.purpose == "masters") masters_seen = row.bytes;
  }
  EXPECT_EQ(moments_seen, 8 * kept);
  EXPECT_EQ(masters_seen, 4 * masters);
  // The dense model beside it is shared out as well, and so are the sparse layers' ratio and what `inspect` plans.
  EXPECT_LT(dense, 2 * moments_seen);
  EXPECT_LT(summary.sparse_layers_ratio, 0.85);
  Config planned = saved;
  planned.distributed.virtual_ranks = 4;
  for (const MemorySummary& row : plan_summary(planned, Mode::training, 2).memory)
    EXPECT_TRUE(row.purpose != "moments" || row.bytes == moments_seen) << row.bytes;
}

// Half of a sum's way for the gradients, the other half for the values.
TEST(Sharding, BytesSentAreThoseOfARing) {
  const testing::TemporaryFolder folder;
  for (const bool half : {false, true}) {
    const fs::path run = folder.path() / (half ? "bf16" : "fp32");
    train_ranks(4,
                tiny_run_config(folder.path(),
                                {"train.micro_batch=2", "distributed.zero=1", "weights.start=0.5", "checkpoint.every=3",
                                 std::string("run.precision=") + (half ? "bf16" : "fp32")}),
                run);
    const auto device = Device::plan(false);
    const Config config = read_config(run / "config.toml");
    const auto expected = [&](bool dense_phase) {
      const Transformer model(*device, config, Mode::training, dense_phase);
      double bytes = 0.0;
      for (const Parameter* parameter : model.parameters()) {
        const std::int64_t count = parameter->count();
        const auto shared = static_cast<double>(parameter->options().shape.rank() == 1 ? 0 : count - count % 256);
        bytes += 0.75 * ((4.0 + (half ? 2.0 : 4.0)) * shared + 2.0 * 4.0 * (static_cast<double>(count) - shared));
      }
      return bytes;
    };
    for (const StepMetrics& step : read_step_metrics(run / "metrics.jsonl"))
      EXPECT_EQ(*find_value(step.exchange, "bytes_sent"), expected(step.step <= 4)) << step.step;
  }
}

}  // namespace
}  // namespace filigree
