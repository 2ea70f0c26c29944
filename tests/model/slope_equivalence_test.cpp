// SLoPe on compressed storage against the same algorithm written out on dense matrices with masks: loss, weights and
// both moments over 20 steps, with decay, clipping and accumulation on.
#include <algorithm>
#include <cmath>
#include <map>

#include "kernels/elementwise/elementwise.h"
#include "kernels/matmul/matmul.h"
#include "optim/optimizer.h"
#include "sparsity/slope_reference.h"
#include "sparsity/slope_weight.h"
#include "tiny_models.h"

namespace filigree {
namespace {

using testing::column_pruned;
using testing::expanded;
using testing::kept_places;
using testing::tiny_config;
using testing::TinyBatch;
using testing::values_of;

// Dense (N, K) arrays and a mask. Only what the comparison needs is implemented.
class MaskedDenseWeight final : public LinearWeight {
 public:
  MaskedDenseWeight(Device& device, const SlopeWeight& source)
      : LinearWeight(source.spec()),
        weight_(device, {.name = spec_.name + ".weight", .shape = {spec_.outputs, spec_.inputs}, .decay = true},
                Mode::training),
        both_(device.memory().tensor(Purpose::weights, DType::f32, {spec_.outputs, spec_.inputs})),
        kept_(kept_places(source.row_pruned())) {
    const std::vector<double> values = expanded(source.row_pruned());
    for (std::size_t i = 0; i < values.size(); ++i) weight_.values().as<float>()[i] = static_cast<float>(values[i]);
    refresh(device);
  }
  void forward(Device& device, const Tensor& y, const Tensor& x, const Tensor& bias) override {
    matmul(device, {.y = y, .a = x, .b = weight_.values(), .bias = bias, .transpose_b = true});
  }
  void input_gradient(Device& device, const Tensor& dx, const Tensor& dy) override {
    matmul(device, {.y = dx, .a = dy, .b = both_});
  }
  void weight_gradient(Device& device, const Tensor& dy, const Tensor& x, bool accumulate) override {
    matmul(device, {.y = weight_.gradient(), .a = dy, .b = x, .transpose_a = true, .accumulate = accumulate});
    for (std::size_t i = 0; i < kept_.size(); ++i)
      if (!kept_[i]) weight_.gradient().as<float>()[i] = 0.0f;
  }
  void refresh(Device&) override {
    const std::vector<double> pruned =
        column_pruned(values_of(weight_.values()), kept_, spec_.outputs, spec_.inputs, spec_.pattern);
    for (std::size_t i = 0; i < pruned.size(); ++i) both_.view().as<float>()[i] = static_cast<float>(pruned[i]);
  }
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
  OwnedTensor both_;  // (N, K): W^{R,C}
  std::vector<bool> kept_;
};

class SlopeEquivalence : public ::testing::TestWithParam<std::tuple<std::string, Pattern>> {};

TEST_P(SlopeEquivalence, TwentyStepsEqualMaskedDenseTraining) {
  const auto& [arch, pattern] = GetParam();
  const auto device = Device::cpu();
  Config config = tiny_config(arch);
  config.weights.method = "slope";
  config.weights.pattern = pattern;
  Transformer sparse(*device, config, Mode::training, false), dense(*device, config, Mode::training, false);
  sparse.initialize(*device);
  dense.initialize(*device);
  int replaced = 0;
  for (Linear* linear : dense.linears())
    if (const auto* slope = dynamic_cast<const SlopeWeight*>(&linear->weight())) {
      linear->replace_weight(std::make_unique<MaskedDenseWeight>(*device, *slope));
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
    auto* slope = dynamic_cast<SlopeWeight*>(&sparse.linears()[index]->weight());
    if (!slope) continue;
    auto& reference = dynamic_cast<MaskedDenseWeight&>(dense.linears()[index]->weight());
    const LinearSpec& spec = slope->spec();
    const OwnedTensor a = device->memory().tensor(Purpose::workspace, DType::f32, {spec.outputs, spec.inputs});
    const OwnedTensor b = device->memory().tensor(Purpose::workspace, DType::f32, {spec.outputs, spec.inputs});
    for (const auto content : {LinearWeight::Content::values, LinearWeight::Content::m, LinearWeight::Content::v}) {
      slope->expand(*device, a, content);
      reference.expand(*device, b, content);
      const auto got = values_of(a), want = values_of(b);
      double error = 0.0, size = 0.0;
      for (std::size_t i = 0; i < got.size(); ++i) {
        error += (got[i] - want[i]) * (got[i] - want[i]);
        size += want[i] * want[i];
        if (!reference.kept()[i]) {
          ASSERT_EQ(got[i], 0.0) << "a pruned place must stay exactly zero";
        }
      }
      // Sums are taken in another order, and AdamW divides by sqrt(v): rounding, and no more, may differ.
      EXPECT_LT(std::sqrt(error / size), 2e-4) << spec.name << " content " << static_cast<int>(content);
    }
    // W^{R,C} is a subset of W^R, value by value.
    const std::vector<double> row_pruned = expanded(slope->row_pruned()), transposed = expanded(slope->column_pruned());
    for (std::int64_t n = 0; n < spec.outputs; ++n)
      for (std::int64_t k = 0; k < spec.inputs; ++k) {
        const double value = transposed[static_cast<std::size_t>(k * spec.outputs + n)];
        if (value != 0.0) {
          ASSERT_EQ(value, row_pruned[static_cast<std::size_t>(n * spec.inputs + k)]);
        }
      }
    EXPECT_TRUE(slope->describe(*device).mask_valid);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, SlopeEquivalence,
                         ::testing::Combine(::testing::Values("gpt2", "llama"),
                                            ::testing::Values(Pattern{2, 4}, Pattern{2, 8})),
                         [](const auto& test) {
                           const Pattern pattern = std::get<1>(test.param);
                           return std::get<0>(test.param) + "_" + std::to_string(pattern.keep) + "_" +
                                  std::to_string(pattern.of);
                         });

}  // namespace
}  // namespace filigree
