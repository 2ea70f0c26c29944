// Makes a checkpoint of ours from a Hugging Face folder.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "io/hub/hub_config.h"

namespace filigree {

struct HubImportOptions {
  std::filesystem::path from;
  std::filesystem::path out;       // the checkpoint's folder, which must not exist
  std::int64_t context = 0;        // 0: all positions that the model has
  std::optional<DType> precision;  // none: bf16 where the folder's matrices are, else fp32
};

struct HubImported {
  HubModel hub;
  DType precision = DType::f32;
  std::int64_t parameters = 0;
  std::string tokenizer;           // name, or ""
  std::vector<std::string> notes;  // what the user should know
};

// One array is in memory at a time. Nothing remains where it fails.
HubImported import_hub_folder(const HubImportOptions& options);

}  // namespace filigree
