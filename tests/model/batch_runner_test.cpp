// Micro-batches that are launched as graphs, beside the same ones called kernel by kernel: every bit.
#include "model/batch_runner.h"

#include "kernels/elementwise/elementwise.h"
#include "optim/optimizer.h"
#include "tiny_models.h"

namespace filigree {
namespace {

using testing::tiny_config;
using testing::TinyBatch;

// Two input buffers in turn, as a run has them.
struct Training {
  std::unique_ptr<Device> device = Device::named(FILIGREE_TEST_DEVICE);
  Config config;
  Transformer model;
  Activations activations;
  OwnedTensor tokens[2], targets[2];
  std::vector<double> losses;

  explicit Training(const Config& of)
      : config(of),
        model(*device, of, Mode::training, false),
        activations(*device, of.model, of.run.precision, 2, 16, Recompute::none) {
    device->set_deterministic(true);
    model.initialize(*device);
    PlanTable plans(false);
    model.plan(*device, plans, 2 * 16);
    for (auto* inputs : {tokens, targets})
      for (int i = 0; i < 2; ++i) inputs[i] = device->memory().tensor(Purpose::data, DType::i32, {2, 16});
  }

  // `run` gets (tokens, targets, scale, accumulate).
  template <typename Run>
  void step(std::int64_t number, int micro_batches, const Run& run) {
    const auto host = Device::cpu();
    const float scale = number == 3 ? 1.0f / 61.0f : 1.0f / 64.0f;  // a batch with fewer targets
    for (int micro = 0; micro < micro_batches; ++micro) {
      const int buffer = static_cast<int>((number * micro_batches + micro) % 2);
      const TinyBatch batch(*host, 2, 16, config.model.vocab, static_cast<std::uint32_t>(10 * number + micro));
      device->copy_from_host(tokens[buffer], batch.tokens.view().data);
      device->copy_from_host(targets[buffer], batch.targets.view().data);
      run(tokens[buffer], targets[buffer], scale, micro > 0);
      losses.push_back(sum(*device, activations.losses(32)));
    }
    losses.push_back(gradient_norm(*device, model.parameters()));
    adamw_step(*device, model.parameters(), config.train, {.lr = 1e-2, .t = number + 1}, {}, 1.0);
    model.refresh(*device);
  }
  std::vector<std::vector<double>> values() {
    std::vector<std::vector<double>> all;
    for (const Parameter* parameter : model.parameters()) {
      const Tensor& on_device = parameter->master();
      std::vector<float> host(static_cast<std::size_t>(on_device.count()));
      device->copy_to_host(host.data(), on_device);
      all.emplace_back(host.begin(), host.end());
    }
    return all;
  }
};

class BatchRunnerTest : public ::testing::TestWithParam<std::tuple<std::string, DType, std::string>> {};
INSTANTIATE_TEST_SUITE_P(Models, BatchRunnerTest,
                         ::testing::Combine(::testing::Values("gpt2", "opt", "llama"),
                                            ::testing::Values(DType::f32, DType::bf16),
                                            ::testing::Values("dense", "slope", "block")));

TEST_P(BatchRunnerTest, GivesTheBitsOfTheCallsThatItReplaces) {
  const auto& [arch, precision, method] = GetParam();
  Config config = tiny_config(arch, precision);
  config.weights.method = method;
  for (const int micro_batches : {1, 2, 3}) {
    Training called(config), run(config);
    BatchRunner runner;
    for (std::int64_t step = 0; step < 6; ++step) {
      called.step(step, micro_batches, [&](const Tensor& tokens, const Tensor& targets, float scale, bool accumulate) {
        if (!accumulate) called.model.zero_gradients(*called.device);
        called.model.forward_backward(*called.device, called.activations, tokens, targets, scale, accumulate);
      });
      run.step(step, micro_batches, [&](const Tensor& tokens, const Tensor& targets, float scale, bool accumulate) {
        runner.run(*run.device, run.model, run.activations, tokens, targets, scale, accumulate);
      });
    }
    EXPECT_EQ(run.losses, called.losses);
    EXPECT_EQ(run.values(), called.values());
    EXPECT_EQ(runner.refusal(), "");
    EXPECT_EQ(runner.graphs() > 0, run.device->is_cuda());
    runner.forget();
    EXPECT_EQ(runner.graphs(), 0u);
  }
}

// After scratch memory has moved, a graph that was recorded before would write to where it lay.
TEST(BatchRunner, RecordsAgainWhenScratchMemoryHasMoved) {
  const Config config = tiny_config("gpt2", DType::bf16);
  Training called(config), run(config);
  BatchRunner runner;
  for (std::int64_t step = 0; step < 9; ++step) {
    called.step(step, 1, [&](const Tensor& tokens, const Tensor& targets, float scale, bool) {
      called.model.zero_gradients(*called.device);
      called.model.forward_backward(*called.device, called.activations, tokens, targets, scale, false);
    });
    if (step == 6)
      for (const Scratch slot : {Scratch::kernel, Scratch::layer, Scratch::caller})
        run.device->scratch(slot, std::size_t{200} << 20);
    run.step(step, 1, [&](const Tensor& tokens, const Tensor& targets, float scale, bool accumulate) {
      runner.run(*run.device, run.model, run.activations, tokens, targets, scale, accumulate);
    });
  }
  EXPECT_EQ(run.losses, called.losses);
  EXPECT_EQ(runner.graphs() > 0, run.device->is_cuda());
  EXPECT_EQ(runner.refusal(), "");
}

}  // namespace
}  // namespace filigree
