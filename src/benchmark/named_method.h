// Methods as benchmarks name them.
#pragma once

#include <charconv>
#include <cmath>
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
inline std::optional<NamedMethod> parse_method(std::string_view name) {
  const std::size_t cut = std::min(name.find("-r"), name.size());
  NamedMethod method{std::string(name.substr(0, cut))};
  if (method.weights != "dense" && method.weights != "slope" && method.weights != "block") return std::nullopt;
  if (cut == name.size()) return method;
  const std::string_view number = name.substr(cut + 2);
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), method.adapter_percent);
  const bool read = error == std::errc{} && end == number.data() + number.size();
  if (!read || !(method.adapter_percent > 0.0 && method.adapter_percent <= 100.0) || method.weights == "dense")
    return std::nullopt;
  return method;
}

// `config` with this method; the rank is at least 1.
inline Config with_method(Config config, const NamedMethod& method) {
  config.weights.method = method.weights;
  config.adapters.rank = 0;
  if (method.adapter_percent > 0.0)
    config.adapters.rank = std::max<std::int64_t>(
        1, std::llround(method.adapter_percent / 100.0 * static_cast<double>(config.model.width)));
  return config;
}

}  // namespace filigree
