// Low-rank adapters in the form of the PEFT library.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "io/hub/hub_names.h"
#include "train/checkpoint.h"

namespace filigree {

// The linear layer whose matrix an array is ("blocks.0.mlp.up"), or "".
std::string layer_of(const HubArray& array);

// Makes `folder` with adapter_config.json and adapter_model.safetensors. A layer of ours that is several of theirs
// gives each of them the same lora_A, and its own rows as lora_B. base: the folder of the model without adapters.
void write_peft_adapter(const std::filesystem::path& folder, const std::filesystem::path& base, const Config& config,
                        const CheckpointReader& checkpoint, const std::vector<HubArray>& arrays);

}  // namespace filigree
