// parse_hub_config, parse_hub_index: any bytes give a model whose arrays can be laid out and which is written and read
// back the same, an index of files in one folder, or a UserError.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "core/error.h"
#include "io/hub/hub_names.h"
#include "io/hub/hub_weights.h"

namespace {

void parse_config(const std::string& text) {
  try {
    const filigree::HubModel hub = filigree::parse_hub_config(text, "config.json");
    if (hub.model.layers <= 4)
      for (const filigree::HubArray& array : filigree::hub_arrays(hub)) {
        std::int64_t rows = 0;
        for (const filigree::HubPart& part : array.parts) rows += part.rows;
        if (rows != array.rows || rows < 1) std::abort();
      }
    const std::string written = filigree::write_hub_config(hub.model, hub.type, filigree::DType::f32, -1, text);
    if (filigree::parse_hub_config(written, "written").model != hub.model) std::abort();
  } catch (const filigree::UserError&) {
    // A refusal is an answer; anything else ends the process.
  }
}

void parse_index(const std::string& text) {
  try {
    for (const auto& [tensor, file] : filigree::parse_hub_index(text, "index.json"))
      if (file.empty() || file.find('/') != std::string::npos || file == "..") std::abort();
  } catch (const filigree::UserError&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  parse_config(text);
  parse_index(text);
  return 0;
}
