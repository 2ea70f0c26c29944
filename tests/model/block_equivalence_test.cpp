// Block-sparse training against the same algorithm on dense matrices with masks: loss, weights and both moments over 20
// steps, with decay, clipping and accumulation on.
#include <cmath>

#include "kernels/elementwise/elementwise.h"
#include "kernels/matmul/matmul.h"
#include "optim/optimizer.h"
#include "sparsity/block_weight.h"
#include "tiny_models.h"

namespace filigree {
namespace {

using testing::tiny_config;
using testing::TinyBatch;
using testing::values_of;

// Dense (N, K) arrays, and a gradient that is cleared where no block is kept. Only what the comparison needs.
class MaskedWeight final : public LinearWeight {
 public:
  MaskedWeight(Device& device, BlockWeight& source)
      : LinearWeight(source.spec()),
        weight_(device, {.name = spec_.name + ".weight", .shape = {spec_.outputs, spec_.inputs}, .decay = true},
                Mode::training) {
    source.expand(device, weight_.values(), Content::values);
    const auto* bits = source.mask().as<std::uint8_t>();
    for (std::int64_t n = 0; n < spec_.outputs; ++n)
      for (std::int64_t k = 0; k < spec_.inputs; ++k) {
        const std::int64_t row = n / spec_.block.rows, column = k / spec_.block.columns;
        kept_.push_back(bits[row * source.mask().shape[1] + column / 8] >> (column % 8) & 1);
      }
  }
  void forward(Device& device, const Tensor& y, const Tensor& x, const Tensor& bias) override {
    matmul(device, {.y = y, .a = x, .b = weight_.values(), .bias = bias, .transpose_b = true});
  }
  void input_gradient(Device& device, const Tensor& dx, const Tensor& dy) override {
    matmul(device, {.y = dx, .a = dy, .b = weight_.values()});
  }
  void weight_gradient(Device& device, const Tensor& dy, const Tensor& x, bool accumulate) override {
    matmul(device, {.y = weight_.gradient(), .a = dy, .b = x, .transpose_a = true, .accumulate = accumulate});
    for (std::size_t i = 0; i < kept_.size(); ++i)
      if (!kept_[i]) weight_.gradient().as<float>()[i] = 0.0f;
  }
  void refresh(Device&) override {}
  std::vector<Parameter*> parameters() override { return {&weight_}; }
  void plan(Device&, PlanTable&, std::int64_t) override {}
  void initialize(Device&, const Tensor&, bool) override { throw Error("not needed"); }
  void expand(Device& device, const Tensor& dense, Content content) override {
    convert(device, dense,
            content == Content::m   ? weight_.m()
            : content == Content::v ? weight_.v()
                                    : weight_.values());
  }
  void save(CheckpointSink&) override { throw Error("not needed"); }
  void load(Device&, const CheckpointSource&, bool) override { throw Error("not needed"); }
  LayerDescription describe(const Device&) const override { return {}; }
  std::int64_t bytes() const override { return 0; }
  const std::vector<bool>& kept() const { return kept_; }

 private:
  Parameter weight_;  // (N, K)
  std::vector<bool> kept_;
};

struct Case {
  const char* name;
  const char* arch;
  BlockShape block;
  double density;
  const char* mask;
};

class BlockEquivalence : public ::testing::TestWithParam<Case> {};

TEST_P(BlockEquivalence, TwentyStepsEqualMaskedDenseTraining) {
  const Case& is = GetParam();
  const auto device = Device::cpu();
  Config config = tiny_config(is.arch);
  config.weights.method = "block";
  config.weights.block = is.block;
  config.weights.density = is.density;
  config.weights.mask = is.mask;
  Transformer sparse(*device, config, Mode::training, false), dense(*device, config, Mode::training, false);
  sparse.initialize(*device);
  dense.initialize(*device);
  int replaced = 0;
  for (Linear* linear : dense.linears())
    if (auto* block = dynamic_cast<BlockWeight*>(&linear->weight())) {
      linear->replace_weight(std::make_unique<MaskedWeight>(*device, *block));
      ++replaced;
    }
  ASSERT_EQ(replaced, 7);  // of eight; the first qkv is dense

  Activations activations(*device, config.model, DType::f32, 2, 16, Recompute::none);
  TrainConfig train;
  train.weight_decay = 0.1;
  const auto step_of = [&](Transformer& model, int step) {
    model.zero_gradients(*device);
    double loss = 0.0;
    for (std::uint32_t micro = 0; micro < 2; ++micro) {
      const TinyBatch batch(*device, 2, 16, config.model.vocab, static_cast<std::uint32_t>(step) * 2 + micro);
      loss += model.train_batch(*device, activations, batch.tokens, batch.targets, 1.0f / 64.0f, micro > 0) / 64.0;
    }
    const double norm = gradient_norm(*device, model.parameters());
    adamw_step(*device, model.parameters(), train, {.lr = 2e-3, .t = step}, {}, norm > 0.5 ? 0.5 / norm : 1.0);
    model.refresh(*device);
    return loss;
  };
  for (int step = 1; step <= 20; ++step)
    ASSERT_NEAR(step_of(sparse, step), step_of(dense, step), 2e-5) << "step " << step;

  for (std::size_t index = 0; index < sparse.linears().size(); ++index) {
    auto* block = dynamic_cast<BlockWeight*>(&sparse.linears()[index]->weight());
    if (!block) continue;
    auto& reference = dynamic_cast<MaskedWeight&>(dense.linears()[index]->weight());
    const LinearSpec& spec = block->spec();
    const OwnedTensor a = device->memory().tensor(Purpose::workspace, DType::f32, {spec.outputs, spec.inputs});
    const OwnedTensor b = device->memory().tensor(Purpose::workspace, DType::f32, {spec.outputs, spec.inputs});
    for (const auto content : {LinearWeight::Content::values, LinearWeight::Content::m, LinearWeight::Content::v}) {
      block->expand(*device, a, content);
      reference.expand(*device, b, content);
      const auto got = values_of(a), want = values_of(b);
      double error = 0.0, size = 0.0;
      for (std::size_t i = 0; i < got.size(); ++i) {
        error += (got[i] - want[i]) * (got[i] - want[i]);
        size += want[i] * want[i];
        if (!reference.kept()[i]) {
          ASSERT_EQ(got[i], 0.0) << "an absent block must stay exactly zero";
        }
      }
      // Sums are taken in another order, and AdamW divides by sqrt(v): rounding, and no more, may differ.
      EXPECT_LT(std::sqrt(error / size), 2e-4) << spec.name << " content " << static_cast<int>(content);
    }
    EXPECT_TRUE(block->describe(*device).mask_valid);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, BlockEquivalence,
                         ::testing::Values(Case{"gpt2_half", "gpt2", {8, 8}, 0.5, "balanced"},
                                           Case{"gpt2_quarter", "gpt2", {4, 16}, 0.25, "random"},
                                           Case{"gpt2_hanging", "gpt2", {24, 20}, 0.5, "balanced"},
                                           Case{"gpt2_all", "gpt2", {16, 16}, 1.0, "balanced"},
                                           Case{"llama_half", "llama", {16, 16}, 0.5, "magnitude"},
                                           Case{"llama_eighth", "llama", {8, 4}, 0.125, "diagonal-band"}),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace filigree
