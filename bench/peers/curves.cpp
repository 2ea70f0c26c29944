// filigree's part of pytorch_curves.py: trains from the weights and on the tokens of a safetensors file (the form of
// tests/golden) and prints the loss of each step, as a JSON array.
//
//   filigree_curves FILE fp32|bf16 STEPS cpu|cuda
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "io/safetensors.h"
#include "model/transformer.h"
#include "optim/optimizer.h"

namespace filigree {
namespace {

class Source final : public CheckpointSource {
 public:
  explicit Source(const SafetensorsFile& file) : file_(file) {}
  bool has(CheckpointSink::File, const std::string& name) const override { return file_.find(name) != nullptr; }
  void load(CheckpointSink::File, const std::string& name, const Tensor& out) const override { file_.load(name, out); }

 private:
  const SafetensorsFile& file_;
};

void run(const std::string& path, const std::string& precision, std::int64_t steps, const std::string& where) {
  const auto device = Device::named(where);
  const SafetensorsFile file(path);
  const auto extent = [&](const char* name, std::size_t axis) { return file.at(name).shape.at(axis); };
  const auto about = nlohmann::json::parse(file.metadata().at("run"));
  Config config;
  config.run.precision = precision == "bf16" ? DType::bf16 : DType::f32;
  config.model.arch = "gpt2";
  config.model.heads = config.model.kv_heads = about.at("heads").get<std::int64_t>();
  config.model.layers = about.at("layers").get<std::int64_t>();
  config.model.vocab = extent("embedding.tokens", 0);
  config.model.width = extent("embedding.tokens", 1);
  config.model.ffn = 4 * config.model.width;
  config.model.context = extent("tokens", 2) - 1;
  config.train.weight_decay = about.at("weight_decay").get<double>();
  const double lr = about.at("lr").get<double>(), clip = about.at("clip").get<double>();

  Transformer model(*device, config, Mode::training, false);
  model.load(*device, Source(file), false);
  const std::int64_t sequences = extent("tokens", 1), context = config.model.context;
  require_user(steps <= extent("tokens", 0), path + ": fewer batches than steps");
  std::vector<std::int32_t> all(static_cast<std::size_t>(extent("tokens", 0) * sequences * (context + 1)));
  file.load("tokens", {all.data(), DType::i32, {extent("tokens", 0), sequences, context + 1}});
  const OwnedTensor tokens = device->memory().tensor(Purpose::data, DType::i32, {sequences, context});
  const OwnedTensor targets = device->memory().tensor(Purpose::data, DType::i32, {sequences, context});
  Activations activations(*device, config.model, config.run.precision, sequences, context, Recompute::none);
  const auto count = static_cast<double>(sequences * context);
  nlohmann::json losses = nlohmann::json::array();
  for (std::int64_t step = 0; step < steps; ++step) {
    for (std::int64_t sequence = 0; sequence < sequences; ++sequence) {
      const std::int32_t* row = all.data() + (step * sequences + sequence) * (context + 1);
      device->copy_from_host(tokens.view().slice(sequence, 1), row);
      device->copy_from_host(targets.view().slice(sequence, 1), row + 1);
    }
    model.zero_gradients(*device);
    losses.push_back(model.train_batch(*device, activations, tokens, targets, static_cast<float>(1.0 / count), false) /
                     count);
    const double norm = gradient_norm(*device, model.parameters());
    adamw_step(*device, model.parameters(), config.train, {.lr = lr, .t = step + 1}, {},
               norm > clip ? clip / norm : 1.0);
    model.refresh(*device);
  }
  std::printf("%s\n", losses.dump().c_str());
}

}  // namespace
}  // namespace filigree

int main(int count, char** arguments) {
  if (count != 5) {
    std::fprintf(stderr, "usage: filigree_curves FILE fp32|bf16 STEPS cpu|cuda\n");
    return 2;
  }
  try {
    filigree::run(arguments[1], arguments[2], std::atoll(arguments[3]), arguments[4]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
