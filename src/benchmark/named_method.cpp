#include "benchmark/named_method.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

namespace filigree {

std::optional<NamedMethod> parse_method(std::string_view name) {
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

Config with_method(Config config, const NamedMethod& method) {
  config.weights.method = method.weights;
  config.adapters.rank = 0;
  if (method.adapter_percent > 0.0)
    config.adapters.rank = std::max<std::int64_t>(
        1, std::llround(method.adapter_percent / 100.0 * static_cast<double>(config.model.width)));
  return config;
}

std::string row_method(const std::string& name, const WeightsConfig& weights, bool gpu) {
  const WeightsConfig usual;
  const std::string method = parse_method(name).value().weights;
  std::string text = name;
  if (method == "slope" && weights.pattern != usual.pattern) text.append("-").append(to_string(weights.pattern));
  if (method == "block" && weights.block.chosen() && weights.block != default_block(gpu))
    text.append("-").append(to_string(weights.block));
  if (method == "block" && weights.density != usual.density) text += fmt::format("-d{}", weights.density);
  return text;
}

}  // namespace filigree
