// Several ranks, as threads of one process, train what one rank trains.
#include "tiny_ranks.h"

namespace filigree {
namespace {

namespace fs = std::filesystem;
using testing::expect_near_runs;
using testing::file_bytes;
using testing::tiny_run_config;
using testing::train_ranks;
using testing::train_tiny;

class Methods : public ::testing::TestWithParam<const char*> {};

TEST_P(Methods, ManyRanksTrainWhatOneTrains) {
  const testing::TemporaryFolder folder;
  const std::vector<std::string> keys = {std::string("weights.method=") + GetParam(), "weights.block=16x16",
                                         "train.micro_batch=1", "train.clip=0.5"};
  const Config config = tiny_run_config(folder.path(), keys);
  ASSERT_EQ(train_tiny(config, folder.path() / "one"), TrainOutcome::finished);
  for (const int ranks : {2, 4}) {
    const fs::path run = folder.path() / ("ranks-" + std::to_string(ranks));
    ASSERT_EQ(train_ranks(ranks, config, run), TrainOutcome::finished);
    expect_near_runs(folder.path() / "one", run, 8);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Methods, ::testing::Values("dense", "slope", "block"));

TEST(Ranks, WithoutOverlapTheBitsAreTheSame) {
  const testing::TemporaryFolder folder;
  const std::vector<std::string> keys = {"train.micro_batch=2", "distributed.bucket_mb=0.001"};
  train_ranks(2, tiny_run_config(folder.path(), keys), folder.path() / "beside");
  std::vector<std::string> after = keys;
  after.push_back("distributed.overlap=false");
  train_ranks(2, tiny_run_config(folder.path(), after), folder.path() / "after");
  for (const char* file : {"model.safetensors", "optimizer.safetensors", "state.json"})
    EXPECT_EQ(file_bytes(checkpoint_path(folder.path() / "beside", 8) / file),
              file_bytes(checkpoint_path(folder.path() / "after", 8) / file));
}

TEST(Ranks, BytesSentAreThoseOfARing) {
  const testing::TemporaryFolder folder;
  for (const bool half : {false, true}) {
    const fs::path run = folder.path() / (half ? "bf16" : "fp32");
    train_ranks(4,
                tiny_run_config(folder.path(), {"train.micro_batch=2",
                                                std::string("gradients.wire_dtype=") + (half ? "bf16" : "fp32")}),
                run);
    const ModelSummary summary = parse_model_summary(file_bytes(run / "inspect.json"));
    for (const StepMetrics& step : read_step_metrics(run / "metrics.jsonl"))
      EXPECT_EQ(*find_value(step.exchange, "bytes_sent"),
                2.0 * 3 / 4 * (half ? 2.0 : 4.0) * static_cast<double>(summary.kept_parameters));
  }
}

TEST(Ranks, ARunGoesOnWithAnotherNumberOfRanks) {
  const testing::TemporaryFolder folder;
  const Config whole = tiny_run_config(folder.path(), {"train.micro_batch=2"});
  train_tiny(whole, folder.path() / "whole");
  const fs::path run = folder.path() / "moved";
  train_ranks(4, whole, run);
  fs::remove_all(checkpoint_path(run, 8));
  ASSERT_EQ(train_ranks(2, whole, run, true), TrainOutcome::finished);
  expect_near_runs(folder.path() / "whole", run, 8);
  fs::remove_all(checkpoint_path(run, 8));
  ASSERT_EQ(train_tiny(whole, run, true), TrainOutcome::finished);
  expect_near_runs(folder.path() / "whole", run, 8);
}

TEST(Ranks, AResumedRunEqualsTheUninterruptedOneBitForBit) {
  const testing::TemporaryFolder folder;
  const Config config = tiny_run_config(
      folder.path(), {"train.micro_batch=2", "weights.start=0.5", "weights.mask=magnitude", "adapters.rank=4",
                      "adapters.start=0.75", "checkpoint.every=3", "checkpoint.keep=0"});
  const fs::path whole = folder.path() / "whole", broken = folder.path() / "broken";
  train_ranks(2, config, whole);
  fs::copy(whole, broken, fs::copy_options::recursive);
  for (const std::int64_t step : {6, 8}) fs::remove_all(checkpoint_path(broken, step));
  ASSERT_EQ(train_ranks(2, config, broken, true), TrainOutcome::finished);
  for (const char* file : {"model.safetensors", "optimizer.safetensors", "state.json"})
    EXPECT_EQ(file_bytes(checkpoint_path(whole, 8) / file), file_bytes(checkpoint_path(broken, 8) / file));
}

std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(Ranks, ABatchThatTheyCannotShareIsRefused) {
  const testing::TemporaryFolder folder;
  const Config config = tiny_run_config(folder.path());
  EXPECT_EQ(refusal([&] { train_ranks(4, config, folder.path() / "run"); }),
            "train.batch_tokens: found 256, which 4 ranks cannot share; expected a multiple of 512 (ranks x "
            "train.micro_batch x model.context)");
  EXPECT_FALSE(fs::exists(folder.path() / "run"));
}

TEST(Ranks, OneThatDiffersIsNamedWithTheDifference) {
  const testing::TemporaryFolder folder;
  const auto change = [](int rank, Config config) {
    if (rank == 1) config.train.lr = 5e-3;
    return config;
  };
  EXPECT_EQ(
      refusal([&] { train_ranks(2, tiny_run_config(folder.path()), folder.path() / "run", false, nullptr, change); }),
      "rank 1 is not like rank 0; start all ranks with one program and one configuration:\n  train.lr: 0.003 on "
      "rank 0, 0.005 here");
  EXPECT_FALSE(fs::exists(folder.path() / "run"));
}

TEST(Ranks, DivergenceIsSaidOnceAndKeepsTheLastCheckpoint) {
  const testing::TemporaryFolder folder;
  const fs::path run = folder.path() / "run";
  const Config config = tiny_run_config(folder.path(), {"train.lr=1e30", "train.warmup=0", "train.clip=0",
                                                        "train.schedule=constant", "checkpoint.every=1"});
  EXPECT_THROW(train_ranks(2, config, run), Diverged);
  ASSERT_TRUE(newest_checkpoint(run).has_value());
  EXPECT_NO_THROW(CheckpointReader{*newest_checkpoint(run)});
}

// Counts what the trainer says it has done.
class Counting final : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::string_view name() const override { return "counting"; }
  using Communicator::all_gather;
  std::vector<std::string> all_gather(std::string_view text) override { return {std::string(text)}; }
  void give_up() noexcept override {}
  void progress() noexcept override { ++count; }
  int count = 0;

 protected:
  std::uint64_t start_all_reduce(Device&, std::span<const Tensor>) override { return 0; }
  std::uint64_t start_reduce_scatter(Device&, const Tensor&, const Tensor&) override { return 0; }
  std::uint64_t start_all_gather(Device&, const Tensor&, const Tensor&) override { return 0; }
  std::uint64_t start_broadcast(Device&, const Tensor&, int) override { return 0; }
  void wait(Device&, std::uint64_t) override {}
};

// So that nobody takes a rank that does any of this for one that hangs.
TEST(Ranks, MicroBatchesEvaluationsAndCheckpointsAreProgress) {
  const testing::TemporaryFolder folder;
  int runs = 0;
  const auto progress = [&](const std::vector<std::string>& keys) {
    Counting ranks;
    std::ostringstream out;
    Console console(out, false);
    Trainer trainer(tiny_run_config(folder.path(), keys),
                    {.run = folder.path() / std::to_string(runs++), .ranks = &ranks}, console);
    trainer.run();
    return ranks.count;
  };
  const std::string last = "checkpoint.every=8";
  const int evaluated_once = progress({"eval.every=8", last});  // 256 tokens in batches of 4 x 32
  EXPECT_EQ(progress({"eval.every=8", "train.micro_batch=1", "eval.tokens=128", last}), evaluated_once + 6 * 8 + 2);
  EXPECT_EQ(progress({"eval.every=4", last}), evaluated_once + 2);
  const int twice = progress({"eval.every=8", "checkpoint.every=4"}) - evaluated_once;
  EXPECT_EQ(progress({"eval.every=8", "checkpoint.every=2"}), evaluated_once + 3 * twice);
  EXPECT_GT(twice, 60) << "the arrays of a model";
}

}  // namespace
}  // namespace filigree
