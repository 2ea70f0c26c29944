#include "eval/generate.h"

#include "model/tiny_models.h"

namespace filigree {
namespace {

using testing::tiny_config;

const auto never = [](std::int32_t) { return false; };

TEST(Generator, GreedyTextIsWhatAWholeForwardPassWouldChoose) {
  const auto device = Device::cpu();
  const Config config = tiny_config("llama");
  Transformer model(*device, config, Mode::inference, false);
  model.initialize(*device);
  Generator generator(*device, model);
  std::vector<std::int32_t> text = {3, 14, 15};
  const auto made = generator.generate(text, 10, {.temperature = 0.0}, never);
  ASSERT_EQ(made.size(), 10u);
  Activations activations(*device, config.model, DType::f32, 1, 16, Recompute::inference);
  for (const std::int32_t next : made) {
    const auto length = static_cast<std::int64_t>(text.size());
    const OwnedTensor logits = device->memory().tensor(Purpose::workspace, DType::f32, {length, config.model.vocab});
    const Tensor tokens{text.data(), DType::i32, {1, length}};
    model.logits(*device, activations, tokens, logits);
    const auto values = testing::values_of(logits.view().slice(length - 1, 1));
    EXPECT_EQ(next, std::max_element(values.begin(), values.end()) - values.begin());
    text.push_back(next);
  }
}

TEST(Generator, GoesOnPastItsContextAndTakesLongPrompts) {
  const auto device = Device::cpu();
  const Config config = tiny_config("gpt2");  // context 16
  Transformer model(*device, config, Mode::inference, false);
  model.initialize(*device);
  Generator generator(*device, model);
  const std::vector<std::int32_t> shorter = {1, 2, 3}, longer(40, 7), full(16, 7);
  EXPECT_EQ(generator.generate(shorter, 50, {}, never).size(), 50u);
  EXPECT_EQ(generator.generate(longer, 5, {}, never).size(), 5u);
  EXPECT_EQ(generator.generate(full, 5, {}, never).size(), 5u);
}

TEST(Generator, StopsWhereItIsToldAndRepeatsItself) {
  const auto device = Device::cpu();
  const Config config = tiny_config("opt");
  Transformer model(*device, config, Mode::inference, false);
  model.initialize(*device);
  Generator generator(*device, model);
  const std::vector<std::int32_t> prompt = {1};
  int left = 4;
  const auto some = generator.generate(prompt, 50, {.seed = 9}, [&](std::int32_t) { return --left == 0; });
  EXPECT_EQ(some.size(), 4u);
  const auto again = generator.generate(prompt, 4, {.seed = 9}, never);
  EXPECT_EQ(again, some);
  EXPECT_NE(generator.generate(prompt, 4, {.seed = 10}, never), some);
}

TEST(Generator, NeverChoosesWhatTheTokenizerDoesNotHave) {
  const auto device = Device::cpu();
  Transformer model(*device, tiny_config("gpt2"), Mode::inference, false);
  model.initialize(*device);
  Generator generator(*device, model, 5);
  const std::vector<std::int32_t> prompt = {1};
  for (const std::int32_t id : generator.generate(prompt, 60, {.temperature = 5.0}, never)) EXPECT_LT(id, 5);
}

TEST(Generator, AllocatesNothingWhileItWrites) {
  const auto device = Device::cpu();
  Transformer model(*device, tiny_config("gpt2"), Mode::inference, false);
  model.initialize(*device);
  Generator generator(*device, model);
  const std::vector<std::int32_t> prompt = {1, 2};
  generator.generate(prompt, 40, {}, never);
  const std::int64_t before = device->memory().allocations();
  generator.generate(prompt, 40, {}, never);
  EXPECT_EQ(device->memory().allocations(), before);
}

}  // namespace
}  // namespace filigree
