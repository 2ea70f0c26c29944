// Makes a Hugging Face folder from a run or a checkpoint.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/dtype.h"

namespace filigree {

enum class HubAdapters : std::uint8_t {
  merged,  // added to their layers' matrices
  peft     // beside the model, in its folder "adapter", as PEFT reads them
};

struct HubExportOptions {
  std::filesystem::path from;  // a run or a checkpoint
  std::filesystem::path out;   // must not exist
  std::int64_t shard_bytes = 5'000'000'000;
  HubAdapters adapters = HubAdapters::merged;
};

struct HubExported {
  std::filesystem::path checkpoint;
  std::string type;       // model_type
  std::size_t files = 0;  // of weights
  DType dtype = DType::f32;
  bool adapters = false;           // the checkpoint had some
  std::vector<std::string> notes;  // what could not be exported
};

// One layer is in memory at a time. Sparse layers become dense ones with zeros. Nothing remains where it fails.
HubExported export_hub_folder(const HubExportOptions& options);

}  // namespace filigree
