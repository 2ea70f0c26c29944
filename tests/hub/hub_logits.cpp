// hub_logits MODEL TOKENS OUT: the logits (B, S, V), computed in fp32, of a run or checkpoint on every position of the
// tensor "tokens" (B, S), int32, of a safetensors file, as the tensor "logits" of another.
#include <cstdio>
#include <exception>

#include "io/safetensors.h"
#include "train/model_loading.h"

namespace filigree {
namespace {

const std::vector<std::string> kSinglePrecision = {"run.precision=fp32"};

void write_logits(const char* model, const char* tokens_file, const char* out) {
  const auto device = Device::cpu();
  const LoadedModel loaded = load_model(*device, model, kSinglePrecision);
  const ModelConfig& shape = loaded.config.model;
  const SafetensorsFile file(tokens_file);
  const std::int64_t batch = file.at("tokens").shape.at(0), sequence = file.at("tokens").shape.at(1);
  Memory& memory = device->memory();
  const OwnedTensor tokens = memory.tensor(Purpose::data, DType::i32, {batch, sequence});
  file.load("tokens", tokens);
  const OwnedTensor logits = memory.tensor(Purpose::data, loaded.config.run.precision, {batch * sequence, shape.vocab});
  Activations activations(*device, shape, loaded.config.run.precision, batch, sequence, Recompute::inference);
  loaded.model->logits(*device, activations, tokens, logits);
  SafetensorsWriter writer(out);
  writer.declare("logits", logits.view().dtype, {batch, sequence, shape.vocab});
  writer.write("logits", logits.view().reshaped({batch, sequence, shape.vocab}));
  writer.finish();
}

}  // namespace
}  // namespace filigree

int main(int argc, char** argv) {
  try {
    filigree::require_user(argc == 4, "hub_logits MODEL TOKENS OUT");
    filigree::write_logits(argv[1], argv[2], argv[3]);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "hub_logits: %s\n", error.what());
    return 1;
  }
}
