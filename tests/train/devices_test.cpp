// A run that moves between the processor and a GPU with its checkpoint.
#include "tiny_run.h"
#include "train/model_loading.h"

namespace filigree {
namespace {

namespace fs = std::filesystem;
using testing::file_bytes;
using testing::tiny_run_config;
using testing::train_tiny;

class MovingRun : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Methods, MovingRun, ::testing::Values("dense", "slope", "block"));

TEST_P(MovingRun, TensorsAreTheSameOnEitherDevice) {
  const testing::TemporaryFolder folder;
  const std::vector<std::string> keys = {"weights.method=" + GetParam(), "weights.block=16x16", "checkpoint.every=4",
                                         "run.precision=bf16"};
  train_tiny(tiny_run_config(folder.path(), keys), folder.path() / "gpu");
  const fs::path checkpoint = checkpoint_path(folder.path() / "gpu", 8);
  // Read by a model on each device, and written again.
  const CheckpointReader reader(checkpoint);
  for (const char* name : {"cpu", "cuda"}) {
    const auto device = Device::named(name);
    Transformer model(*device, checkpoint_config(checkpoint, {}), Mode::training, false);
    model.load(*device, reader, true);
    const fs::path copy = folder.path() / name / "checkpoints" / "step-00000008";
    write_checkpoint(copy, *device, model, reader.state(), file_bytes(checkpoint / "config.toml"),
                     file_bytes(checkpoint / "tokenizer.model"));
    for (const char* file : {"model.safetensors", "optimizer.safetensors"})
      EXPECT_EQ(file_bytes(copy / file), file_bytes(checkpoint / file)) << name << " " << file;
  }
}

TEST_P(MovingRun, GoesOnOnTheOtherDevice) {
  const testing::TemporaryFolder folder;
  const auto config = [&](const char* device) {
    return tiny_run_config(folder.path(), {"weights.method=" + GetParam(), "weights.block=16x16", "checkpoint.every=1",
                                           "checkpoint.keep=0", std::string("run.device=") + device});
  };
  const fs::path whole = folder.path() / "whole", moved = folder.path() / "moved";
  train_tiny(config("cpu"), whole);
  fs::copy(whole, moved, fs::copy_options::recursive);
  for (std::int64_t step = 5; step <= 8; ++step) fs::remove_all(checkpoint_path(moved, step));
  ASSERT_EQ(train_tiny(config("cuda"), moved, true), TrainOutcome::finished);
  const auto want = read_step_metrics(whole / "metrics.jsonl"), got = read_step_metrics(moved / "metrics.jsonl");
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i].loss, want[i].loss, 1e-4) << "step " << i + 1;
}

}  // namespace
}  // namespace filigree
