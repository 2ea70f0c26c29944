#include "model/transformer.h"

#include <cmath>
#include <limits>
#include <map>

#include "io/model_presets.h"
#include "kernels/elementwise/elementwise.h"
#include "optim/optimizer.h"
#include "tiny_models.h"

namespace filigree {
namespace {

using testing::tiny_config;
using testing::TinyBatch;
using testing::values_of;

std::map<std::string, std::vector<double>> gradients(Transformer& model) {
  std::map<std::string, std::vector<double>> all;
  for (const Parameter* parameter : model.parameters()) all[parameter->name()] = values_of(parameter->gradient());
  return all;
}

class Architectures : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, Architectures, ::testing::Values("gpt2", "opt", "llama"));

// Every parameter's gradient along a random direction against a central difference of the fp32 loss.
TEST_P(Architectures, GradientsAgreeWithFiniteDifferences) {
  const auto device = Device::cpu();
  const Config config = tiny_config(GetParam());
  Transformer model(*device, config, Mode::training, false);
  model.initialize(*device);
  // Larger weights than at initialisation, so that every path carries a gradient worth measuring.
  for (Parameter* parameter : model.parameters())
    if (parameter->options().decay || parameter->name().starts_with("embedding"))
      scale(*device, parameter->values(), 8.0f);
  for (Parameter* parameter : model.parameters())
    if (parameter->name().ends_with(".bias")) testing::fill_normal(parameter->values(), 5, 0.1);
  Activations activations(*device, config.model, DType::f32, 2, 16, Recompute::none);
  const TinyBatch batch(*device, 2, 16, config.model.vocab);
  model.zero_gradients(*device);
  model.train_batch(*device, activations, batch.tokens, batch.targets, 1.0f, false);
  const auto gradient = gradients(model);

  std::uint32_t stream = 100;
  for (Parameter* parameter : model.parameters()) {
    auto* values = parameter->values().as<float>();
    const std::vector<float> saved(values, values + parameter->count());
    const Random random(11, RandomPurpose::test, ++stream);
    std::vector<double> direction(saved.size());
    double norm = 0.0, along = 0.0;
    for (std::size_t i = 0; i < saved.size(); ++i) {
      direction[i] = static_cast<double>(random.normal(i)) + gradient.at(parameter->name())[i];  // leans uphill
      norm += direction[i] * direction[i];
    }
    for (std::size_t i = 0; i < saved.size(); ++i) {
      direction[i] /= std::sqrt(norm);
      along += direction[i] * gradient.at(parameter->name())[i];
    }
    const auto at = [&](double h) {
      for (std::size_t i = 0; i < saved.size(); ++i)
        values[i] = static_cast<float>(static_cast<double>(saved[i]) + h * direction[i]);
      return model.loss(*device, activations, batch.tokens, batch.targets);
    };
    // The loss is a sum of 32 fp32 token losses of about 10: its rounding over the step bounds what can be seen. ReLU
    // has kinks: a step that crosses one says nothing, so there the best of several steps counts; a wrong gradient has
    // none.
    double excess = std::numeric_limits<double>::infinity(), closest = 0.0;
    for (const double step :
         GetParam() == "opt" ? std::vector<double>{1e-2, 4e-3, 1.5e-3, 5e-4} : std::vector<double>{1e-2}) {
      const double measured = (8.0 * (at(step) - at(-step)) - (at(2 * step) - at(-2 * step))) / (12.0 * step);
      const double beyond = std::abs(measured - along) - (2e-3 * std::abs(along) + 4e-5 / step);
      if (beyond < excess) closest = measured;
      excess = std::min(excess, beyond);
    }
    std::copy(saved.begin(), saved.end(), values);
    EXPECT_LE(excess, 0.0) << parameter->name() << ": measured " << closest << ", computed " << along;
    EXPECT_GT(std::abs(along), 1e-2) << parameter->name() << " carries no gradient";
  }
}

TEST_P(Architectures, RecomputationChangesNoBit) {
  const auto device = Device::cpu();
  for (const DType precision : {DType::f32, DType::bf16}) {
    Config config = tiny_config(GetParam(), precision);
    config.weights.method = "slope";
    std::map<std::string, std::vector<double>> reference;
    std::int64_t bytes = 0;
    for (const Recompute mode : {Recompute::none, Recompute::activation, Recompute::block}) {
      Transformer model(*device, config, Mode::training, false);
      model.initialize(*device);
      const std::int64_t before = device->memory().bytes(Purpose::activations);
      Activations activations(*device, config.model, precision, 2, 16, mode);
      const std::int64_t taken = device->memory().bytes(Purpose::activations) - before;
      const TinyBatch batch(*device, 2, 16, config.model.vocab);
      model.zero_gradients(*device);
      model.train_batch(*device, activations, batch.tokens, batch.targets, 1.0f / 32.0f, false);
      if (mode == Recompute::none)
        reference = gradients(model);
      else
        EXPECT_LT(taken, bytes);
      bytes = taken;
      EXPECT_EQ(gradients(model), reference);
    }
  }
}

TEST_P(Architectures, MicroBatchesAddUpToTheBatch) {
  const auto device = Device::cpu();
  Config config = tiny_config(GetParam());
  config.weights.method = "slope";
  Transformer model(*device, config, Mode::training, false);
  model.initialize(*device);
  Activations activations(*device, config.model, DType::f32, 4, 16, Recompute::none);
  const TinyBatch batch(*device, 4, 16, config.model.vocab);
  model.zero_gradients(*device);
  const double whole = model.train_batch(*device, activations, batch.tokens, batch.targets, 1.0f / 64.0f, false);
  const auto reference = gradients(model);
  model.zero_gradients(*device);
  double sum = 0.0;
  for (int micro = 0; micro < 2; ++micro)
    sum += model.train_batch(*device, activations, batch.tokens.view().slice(micro * 2, 2),
                             batch.targets.view().slice(micro * 2, 2), 1.0f / 64.0f, micro > 0);
  EXPECT_NEAR(sum, whole, 1e-3);
  for (const auto& [name, values] : gradients(model))
    for (std::size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(values[i], reference.at(name)[i], 1e-5) << name;
}

// The head multiplies whole multiples of 64 rows; what it has behind the vocabulary stays out of loss and gradient.
TEST(Transformer, SpareLogitsChangeNothing) {
  const auto device = Device::cpu();
  for (const char* arch : {"gpt2", "llama"}) {  // tied and untied
    Config config = tiny_config(arch);
    config.model.vocab = 1030;
    Transformer model(*device, config, Mode::training, false);
    model.initialize(*device);
    Activations activations(*device, config.model, DType::f32, 2, 16, Recompute::none);
    const TinyBatch batch(*device, 2, 16, config.model.vocab);
    Parameter* table = nullptr;  // of the head
    for (Parameter* parameter : model.parameters())
      if (parameter->name() == (config.model.tied ? "embedding.tokens" : "head.weight")) table = parameter;
    ASSERT_NE(table, nullptr);
    EXPECT_EQ(table->count(), 1030 * 32);
    EXPECT_EQ(table->options().spare_rows, 58);
    for (int step = 1; step <= 2; ++step) {
      const OwnedTensor logits = device->memory().tensor(Purpose::workspace, DType::f32, {32, 1030});
      model.logits(*device, activations, batch.tokens, logits);
      const std::vector<double> x = values_of(logits);
      double expected = 0.0;
      for (std::size_t t = 0; t < 32; ++t) {
        double sum = 0.0;
        for (std::size_t i = 0; i < 1030; ++i) sum += std::exp(x[t * 1030 + i]);
        expected += std::log(sum) - x[t * 1030 + static_cast<std::size_t>(batch.targets.view().as<std::int32_t>()[t])];
      }
      model.zero_gradients(*device);
      EXPECT_NEAR(model.train_batch(*device, activations, batch.tokens, batch.targets, 1.0f / 32.0f, false), expected,
                  1e-3);
      for (const Tensor& all : {table->values(1088), table->gradient(1088)}) {
        const std::vector<double> rows = values_of(all);
        for (std::size_t i = 1030 * 32; i < rows.size(); ++i) ASSERT_EQ(rows[i], 0.0) << arch << ", " << i;
      }
      adamw_step(*device, model.parameters(), config.train, {.lr = 1e-2, .t = step}, {}, 1.0);
    }
  }
}

// Generation with the cache sees what a whole forward pass sees, however the prompt is cut.
TEST_P(Architectures, CachedLogitsEqualFullLogits) {
  const auto device = Device::cpu();
  for (const DType precision : {DType::f32, DType::bf16}) {
    Config config = tiny_config(GetParam(), precision);
    config.weights.method = "slope";
    Transformer model(*device, config, Mode::inference, false);
    model.initialize(*device);
    Activations activations(*device, config.model, precision, 2, 16, Recompute::inference);
    const TinyBatch batch(*device, 2, 12, config.model.vocab);
    const std::int64_t vocab = config.model.vocab;
    const OwnedTensor full = device->memory().tensor(Purpose::workspace, precision, {24, vocab});
    model.logits(*device, activations, batch.tokens, full);
    const std::vector<double> want = values_of(full);
    KeyValueCache cache = model.make_cache(*device, 2, 16);
    const OwnedTensor last = device->memory().tensor(Purpose::workspace, precision, {2, vocab});
    for (const std::int64_t piece : {5, 1, 1, 4, 1}) {
      const OwnedTensor part = device->memory().tensor(Purpose::data, DType::i32, {2, piece});
      for (std::int64_t b = 0; b < 2; ++b)
        for (std::int64_t s = 0; s < piece; ++s)
          part.view().as<std::int32_t>()[b * piece + s] =
              batch.tokens.view().as<std::int32_t>()[b * 12 + cache.length + s];
      model.forward_cached(*device, activations, part, cache, last);
      const std::vector<double> got = values_of(last);
      for (std::int64_t b = 0; b < 2; ++b)
        for (std::int64_t v = 0; v < vocab; ++v)
          ASSERT_NEAR(got[static_cast<std::size_t>(b * vocab + v)],
                      want[static_cast<std::size_t>((b * 12 + cache.length - 1) * vocab + v)],
                      precision == DType::f32 ? 2e-5 : 2e-2);
    }
    EXPECT_EQ(cache.length, 12);
  }
}

TEST_P(Architectures, OverfitsASingleBatchDenseAndSparse) {
  for (const char* method : {"dense", "slope", "block"})
    for (const DType precision : {DType::f32, DType::bf16}) {
      const auto device = Device::cpu();
      Config config = tiny_config(GetParam(), precision);
      config.weights.method = method;
      config.weights.block = {8, 8};
      config.train.weight_decay = 0.0;
      Transformer model(*device, config, Mode::training, false);
      model.initialize(*device);
      Activations activations(*device, config.model, precision, 2, 16, Recompute::none);
      const TinyBatch batch(*device, 2, 16, config.model.vocab);
      double loss = 0.0;
      for (int step = 1; step <= 150; ++step) {
        model.zero_gradients(*device);
        loss = model.train_batch(*device, activations, batch.tokens, batch.targets, 1.0f / 32.0f, false) / 32.0;
        if (step == 1) {
          EXPECT_NEAR(loss, std::log(61.0), 0.3);
        }
        adamw_step(*device, model.parameters(), config.train, {.lr = 5e-3, .t = step}, {}, 1.0);
        model.refresh(*device);
      }
      EXPECT_LT(loss, 0.1) << method << " " << name_of(precision);
    }
}

TEST(Transformer, EveryTrainableArrayMovesInOneStep) {
  const auto device = Device::cpu();
  Config config = tiny_config("gpt2");
  config.weights.method = "slope";
  config.train.weight_decay = 0.0;  // decay alone would move them
  config.adapters.rank = 4;
  Transformer model(*device, config, Mode::training, false);
  model.initialize(*device);
  model.insert_adapters(*device);
  for (Parameter* parameter : model.parameters())  // a zero right factor would hide the left one's gradient
    if (parameter->name().ends_with(".right")) testing::fill_normal(parameter->values(), 5, 0.1);
  Activations activations(*device, config.model, DType::f32, 2, 16, Recompute::none);
  const TinyBatch batch(*device, 2, 16, config.model.vocab);
  model.zero_gradients(*device);
  model.train_batch(*device, activations, batch.tokens, batch.targets, 1.0f / 32.0f, false);
  std::map<std::string, std::vector<double>> before;
  for (const Parameter* parameter : model.parameters()) before[parameter->name()] = values_of(parameter->values());
  adamw_step(*device, model.parameters(), config.train, {.lr = 1e-2, .t = 1}, {.lr = 1e-2, .t = 1}, 1.0);
  for (const Parameter* parameter : model.parameters())
    EXPECT_NE(values_of(parameter->values()), before[parameter->name()]) << parameter->name();
}

class WarmTransformer : public ::testing::TestWithParam<const char*> {};

TEST_P(WarmTransformer, AllocatesNothing) {
  const auto device = Device::cpu();
  Config config = tiny_config("llama", DType::bf16);
  config.weights.method = GetParam();
  Transformer model(*device, config, Mode::training, false);
  model.initialize(*device);
  Activations activations(*device, config.model, DType::bf16, 2, 16, Recompute::none);
  const TinyBatch batch(*device, 2, 16, config.model.vocab);
  std::int64_t after_first = 0;
  for (int step = 1; step <= 4; ++step) {
    model.zero_gradients(*device);
    model.train_batch(*device, activations, batch.tokens, batch.targets, 1.0f / 32.0f, false);
    (void)gradient_norm(*device, model.parameters());
    adamw_step(*device, model.parameters(), config.train, {.lr = 1e-3, .t = step}, {}, 1.0);
    model.refresh(*device);
    if (step == 1) after_first = device->memory().allocations();
  }
  EXPECT_EQ(device->memory().allocations(), after_first);
}

INSTANTIATE_TEST_SUITE_P(Methods, WarmTransformer, ::testing::Values("dense", "slope", "block"));

TEST(Transformer, CountsAsManyParametersAsItsPresetSays) {
  Config config;
  config.model = *model_preset("tiny");
  resolve_shape(config.model);
  config.model.vocab = 257;
  const auto device = Device::cpu();
  Transformer model(*device, config, Mode::inference, false);
  std::int64_t count = 0;
  for (const Parameter* parameter : model.parameters()) count += parameter->count();
  EXPECT_EQ(count, parameter_count(config.model));
}

}  // namespace
}  // namespace filigree
