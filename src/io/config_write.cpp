#include <charconv>
#include <cmath>

#include "io/config_keys.h"
#include "io/config_toml.h"

namespace filigree {

namespace {

// A TOML basic string.
std::string toml_text(std::string_view text) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  std::string out = "\"";
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (code < 0x20 || code == 0x7f) {
      out += "\\u00";
      out += digits[code >> 4];
      out += digits[code & 15];
    } else {
      out += c;
    }
  }
  return out + "\"";
}

// The shortest digits that read back as the same double, always recognisable as a float.
std::string toml_number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof(digits), value).ptr;
  std::string text(digits, end);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string toml(bool value) {
  return value ? "true" : "false";
}
std::string toml(std::int64_t value) {
  return std::to_string(value);
}
std::string toml(double value) {
  return toml_number(value);
}
std::string toml(const std::string& value) {
  return toml_text(value);
}
std::string toml(const WeightsConfig::Override& entry) {
  std::string text = "{ layers = " + toml_text(entry.layers);
  if (!entry.method.empty()) text += ", method = " + toml_text(entry.method);
  if (!entry.pattern.empty()) text += ", pattern = " + toml_text(entry.pattern);
  if (!entry.block.empty()) text += ", block = " + toml_text(entry.block);
  if (entry.density != 0.0) text += ", density = " + toml_number(entry.density);
  return text + " }";
}
template <typename T>
std::string toml(const std::vector<T>& list) {
  std::string text = "[";
  for (const T& item : list) text += (text.size() > 1 ? ", " : "") + toml(item);
  return text + "]";
}

}  // namespace

std::string toml_value(const ConfigValue& value) {
  return std::visit([](const auto& held) { return toml(held); }, value);
}

std::string write_config(const Config& config) {
  std::string text;
  std::string_view section;
  for (const ConfigKey& key : config_keys()) {
    const std::string_view this_section = key.name.substr(0, key.name.find('.'));
    if (this_section != section) {
      text += (text.empty() ? "[" : "\n[") + std::string(this_section) + "]\n";
      section = this_section;
    }
    text += std::string(key.name.substr(section.size() + 1)) + " = " + toml_value(key.get(config)) + "\n";
  }
  return text;
}

std::vector<ConfigChange> difference(const Config& before, const Config& after) {
  std::vector<ConfigChange> changes;
  for (const ConfigKey& key : config_keys()) {
    std::string old_value = toml_value(key.get(before));
    std::string new_value = toml_value(key.get(after));
    if (old_value != new_value)
      changes.push_back({std::string(key.name), std::move(old_value), std::move(new_value), key.resumable});
  }
  return changes;
}

}  // namespace filigree
