// parse_config: any text and any --set give a configuration that survives writing and reading, or a UserError.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/error.h"
#include "io/config_toml.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // The text, then one --set after each zero byte.
  std::vector<std::string> parts(1);
  for (std::size_t i = 0; i < size; ++i) {
    if (data[i] == 0)
      parts.emplace_back();
    else
      parts.back() += static_cast<char>(data[i]);
  }
  const std::string text = parts.front();
  parts.erase(parts.begin());
  filigree::Config config;
  try {
    config = filigree::parse_config(text, "input.toml", "/base", parts);
  } catch (const filigree::UserError&) {
    return 0;
  }
  // What was accepted once must be accepted as it is written, and mean the same: no exception is caught here.
  const std::string written = filigree::write_config(config);
  if (!(filigree::parse_config(written, "written.toml", "/elsewhere") == config)) {
    std::fputs(written.c_str(), stderr);
    std::abort();
  }
  return 0;
}
