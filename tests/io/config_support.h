// Shared by the configuration tests.
#pragma once

#include <string>
#include <vector>

#include "core/error.h"
#include "io/config_toml.h"

namespace filigree::testing {

// The least that a run needs, in three lines.
inline constexpr const char* kSmall =
    "model = { preset = 'tiny' }\ndata = { train = '/d/*.bin' }\ntrain = { steps = 10, batch_tokens = 128 }\n";

inline Config parse(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return parse_config(text, "run.toml", "/base", overrides);
}

// The UserError's text, "(accepted)" when there is none.
inline std::string refusal(const std::string& text, const std::vector<std::string>& overrides = {}) {
  try {
    parse(text, overrides);
  } catch (const UserError& error) {
    return error.what();
  }
  return "(accepted)";
}

// The message that one --set gives on top of the small configuration.
inline std::string set_refusal(const std::string& override_text) {
  return refusal(kSmall, {override_text});
}
inline Config with(const std::vector<std::string>& overrides) {
  return parse(kSmall, overrides);
}

}  // namespace filigree::testing
