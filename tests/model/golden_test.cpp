// The same weights and tokens as PyTorch (scripts/golden/make_golden.py): logits, and loss and gradient norm of each of
// 20 AdamW steps.
#include <cmath>

#include "io/safetensors.h"
#include "model/transformer.h"
#include "optim/optimizer.h"
#include "tiny_models.h"

namespace filigree {
namespace {

class GoldenSource final : public CheckpointSource {
 public:
  explicit GoldenSource(const SafetensorsFile& file) : file_(file) {}
  bool has(CheckpointSink::File, const std::string& name) const override { return file_.find(name) != nullptr; }
  void load(CheckpointSink::File, const std::string& name, const Tensor& out) const override { file_.load(name, out); }

 private:
  const SafetensorsFile& file_;
};

class Golden : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Architectures, Golden, ::testing::Values("gpt2", "opt", "llama"));

TEST_P(Golden, LossEqualsPyTorchAtEachOfTwentySteps) {
  const auto device = Device::named(FILIGREE_TEST_DEVICE), host = Device::cpu();
  const SafetensorsFile file(std::string(FILIGREE_SOURCE_DIR) + "/tests/golden/" + GetParam() + ".safetensors");
  const auto extent = [&](const char* name, std::size_t axis) { return file.at(name).shape.at(axis); };
  Config config;
  config.model.arch = GetParam();
  config.model.heads = 4;
  config.model.kv_heads = GetParam() == "llama" ? 2 : 4;
  config.model.vocab = extent("embedding.tokens", 0);
  config.model.width = extent("embedding.tokens", 1);
  config.model.ffn = extent("blocks.0.mlp.down.weight", 1);
  config.model.context = extent("tokens", 2) - 1;
  config.model.tied = file.find("head.weight") == nullptr;
  while (file.find("blocks." + std::to_string(config.model.layers) + ".norm1.gain")) ++config.model.layers;
  config.train.weight_decay = 0.1;

  Transformer model(*device, config, Mode::training, false);
  model.load(*device, GoldenSource(file), false);
  const std::int64_t steps = extent("tokens", 0), sequences = extent("tokens", 1), context = config.model.context;
  Memory& memory = host->memory();
  const OwnedTensor all = memory.tensor(Purpose::data, DType::i32, {steps, sequences, context + 1});
  const OwnedTensor losses = memory.tensor(Purpose::data, DType::f32, {steps});
  const OwnedTensor norms = memory.tensor(Purpose::data, DType::f32, {steps});
  file.load("tokens", all);
  file.load("losses", losses);
  file.load("gradient_norms", norms);
  const OwnedTensor tokens = device->memory().tensor(Purpose::data, DType::i32, {sequences, context});
  const OwnedTensor targets = device->memory().tensor(Purpose::data, DType::i32, {sequences, context});
  Activations activations(*device, config.model, DType::f32, sequences, context, Recompute::none);
  const auto count = static_cast<double>(sequences * context);

  for (std::int64_t step = 0; step < steps; ++step) {
    for (std::int64_t b = 0; b < sequences; ++b) {
      const auto* row = all.view().as<std::int32_t>() + (step * sequences + b) * (context + 1);
      device->copy_from_host(tokens.view().slice(b, 1), row);
      device->copy_from_host(targets.view().slice(b, 1), row + 1);
    }
    if (step == 0) {
      const Shape shape{sequences, context, config.model.vocab};
      const OwnedTensor want = memory.tensor(Purpose::data, DType::f32, shape),
                        got = memory.tensor(Purpose::data, DType::f32, shape),
                        computed = device->memory().tensor(Purpose::data, DType::f32, shape);
      file.load("logits", want);
      model.logits(*device, activations, tokens, computed.view().reshaped({sequences * context, config.model.vocab}));
      device->copy_to_host(got.view().data, computed);
      const auto a = testing::values_of(got), b = testing::values_of(want);
      for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-4);
    }
    model.zero_gradients(*device);
    const double loss =
        model.train_batch(*device, activations, tokens, targets, static_cast<float>(1.0 / count), false) / count;
    const double norm = gradient_norm(*device, model.parameters());
    EXPECT_NEAR(loss, static_cast<double>(losses.view().as<float>()[step]), 1e-4) << "step " << step;
    EXPECT_NEAR(norm, static_cast<double>(norms.view().as<float>()[step]), 1e-3 * norm) << "step " << step;
    adamw_step(*device, model.parameters(), config.train, {.lr = 1e-3, .t = step + 1}, {},
               norm > 1.0 ? 1.0 / norm : 1.0);
  }
}

}  // namespace
}  // namespace filigree
