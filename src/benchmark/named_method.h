// Methods as benchmarks name them, on the command line and in their rows.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "io/config.h"

namespace filigree {

struct NamedMethod {
  std::string weights;           // dense | slope | block
  double adapter_percent = 0.0;  // rank of its adapters in per cent of the model's width; 0: it has none
};

// "slope", or with adapters "slope-r1.56"; nothing when it is neither. A dense model has no adapters.
std::optional<NamedMethod> parse_method(std::string_view name);

// `config` with this method; the rank is at least 1.
Config with_method(Config config, const NamedMethod& method);

// The method's name in the rows of a benchmark: what is not the default of `weights` follows it, so that rows of other
// settings do not take its place. "slope-1:4", "block-64x64-d0.25".
std::string row_method(const std::string& name, const WeightsConfig& weights, bool gpu);

}  // namespace filigree
