#include "train/hub_adapter.h"

#include <nlohmann/json.hpp>

#include "io/atomic_file.h"

namespace filigree {
namespace {

namespace fs = std::filesystem;
using File = CheckpointSink::File;
using Json = nlohmann::ordered_json;

constexpr std::string_view kWeight = ".weight";

// "model.layers.0.mlp.up_proj"
std::string module_of(const HubPart& part) {
  return part.name.substr(0, part.name.size() - kWeight.size());
}

std::string tensor_name(const HubPart& part, const char* half) {
  return "base_model.model." + module_of(part) + "." + half + ".weight";
}

std::string config_json(const fs::path& base, const Config& config, const std::vector<std::string>& modules) {
  const std::int64_t rank = config.adapters.rank;
  // PEFT multiplies by alpha / rank: the factor is 1 / rank as published, or 1 with adapters.init = "scaled".
  const Json json = {{"peft_type", "LORA"},
                     {"task_type", "CAUSAL_LM"},
                     {"base_model_name_or_path", base.string()},
                     {"inference_mode", true},
                     {"r", rank},
                     {"lora_alpha", config.adapters.init == "scaled" ? rank : 1},
                     {"lora_dropout", 0.0},
                     {"use_rslora", false},
                     {"bias", "none"},
                     {"fan_in_fan_out", config.model.arch == "gpt2"},
                     {"target_modules", modules}};
  return json.dump(2) + "\n";
}

}  // namespace

std::string layer_of(const HubArray& array) {
  if (!array.name.ends_with(kWeight)) return "";
  return array.name.substr(0, array.name.size() - kWeight.size());
}

void write_peft_adapter(const fs::path& folder, const fs::path& base, const Config& config,
                        const CheckpointReader& checkpoint, const std::vector<HubArray>& arrays) {
  const std::int64_t rank = config.adapters.rank;
  std::vector<const HubArray*> adapted;
  std::vector<std::string> modules;
  for (const HubArray& array : arrays)
    if (const std::string layer = layer_of(array);
        !layer.empty() && checkpoint.has(File::model, layer + ".adapter.left")) {
      adapted.push_back(&array);
      for (const HubPart& part : array.parts) modules.push_back(module_of(part));
    }
  fs::create_directories(folder);
  SafetensorsWriter writer(folder / "adapter_model.safetensors");
  writer.metadata("format", "pt");
  for (const HubArray* array : adapted)
    for (const HubPart& part : array->parts) {
      writer.declare(tensor_name(part, "lora_A"), DType::f32, {rank, array->columns});
      writer.declare(tensor_name(part, "lora_B"), DType::f32, {part.rows, rank});
    }
  std::vector<float> left, right;
  for (const HubArray* array : adapted) {
    const std::string layer = layer_of(*array);
    left.resize(static_cast<std::size_t>(rank * array->columns));
    right.resize(static_cast<std::size_t>(array->rows * rank));
    const Tensor a{left.data(), DType::f32, {rank, array->columns}};
    const Tensor b{right.data(), DType::f32, {array->rows, rank}};
    checkpoint.load(File::model, layer + ".adapter.left", a);
    checkpoint.load(File::model, layer + ".adapter.right", b);
    std::int64_t row = 0;
    for (const HubPart& part : array->parts) {
      writer.write(tensor_name(part, "lora_A"), a);
      writer.write(tensor_name(part, "lora_B"), b.slice(row, part.rows));
      row += part.rows;
    }
  }
  writer.finish();
  write_file_atomically(folder / "adapter_config.json", config_json(base, config, modules));
}

}  // namespace filigree
