#include "io/config_keys.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "io/layer_pattern.h"

namespace filigree {

namespace {

std::string limit(double value) {
  char digits[32];
  return std::string(digits, std::to_chars(digits, digits + sizeof(digits), value).ptr);
}

std::string expected_number(const ConfigKey& key) {
  std::string text = key.kind == Kind::integer ? "an integer" : "a number";
  if (key.kind == Kind::number_pair) text = "two numbers";
  // The largest bounds only keep arithmetic safe; a user who meets the lower one need not read them.
  if (key.maximum > 1e5) return text + (key.above ? " above " : " of at least ") + limit(key.minimum);
  if (key.above) return text + " above " + limit(key.minimum) + " and at most " + limit(key.maximum);
  text += " from " + limit(key.minimum) + " to " + limit(key.maximum);
  return key.below ? text + " (excluded)" : text;
}

bool in_range(const ConfigKey& key, double value) {
  const bool high_enough = key.above ? value > key.minimum : value >= key.minimum;
  const bool low_enough = key.below ? value < key.maximum : value <= key.maximum;
  return high_enough && low_enough;  // false for NaN
}

std::string number_problem(const ConfigKey& key, double value) {
  if (in_range(key, value)) return "";
  return "expected " + expected_number(key) + (value > 1e5 ? " and at most " + limit(key.maximum) : "");
}

std::string choice_problem(const ConfigKey& key, const std::string& text) {
  for (const Choice& choice : key.choices)
    if (choice.name == text)
      return choice.missing.empty() ? ""
                                    : "this build of filigree does not have " + std::string(choice.missing) +
                                          "; expected " + expected_value(key);
  return "expected " + expected_value(key);
}

std::string override_problem(const WeightsConfig::Override& entry) {
  if (const std::string problem = layer_pattern_problem(entry.layers); !problem.empty())
    return "layers: " + problem + "; expected a name such as \"blocks.0-3.*\"";
  if (!entry.method.empty()) {
    const std::string problem = choice_problem(*find_config_key("weights.method"), entry.method);
    if (!problem.empty()) return "method: " + problem;
  }
  if (!entry.pattern.empty() && !parse_pattern(entry.pattern))
    return "pattern: expected " + expected_value(*find_config_key("weights.pattern"));
  if (!entry.block.empty() && !parse_block(entry.block))
    return "block: expected " + expected_value(*find_config_key("weights.block"));
  if (entry.density != 0.0)
    if (const std::string problem = number_problem(*find_config_key("weights.density"), entry.density);
        !problem.empty())
      return "density: " + problem;
  if (entry.method.empty() && entry.pattern.empty() && entry.block.empty() && entry.density == 0.0)
    return "expected method, pattern, block or density beside layers";
  return "";
}

}  // namespace

const ConfigKey* find_config_key(std::string_view name) {
  for (const ConfigKey& key : config_keys())
    if (key.name == name) return &key;
  return nullptr;
}

std::string expected_value(const ConfigKey& key) {
  if (!key.choices.empty()) {
    std::string text;
    for (const Choice& choice : key.choices)
      if (choice.missing.empty() && !choice.name.empty())
        text += (text.empty() ? "one of \"" : ", \"") + std::string(choice.name) + "\"";
    return text;
  }
  if (!key.form.empty()) return std::string(key.form);
  switch (key.kind) {
    case Kind::boolean:
      return "true or false";
    case Kind::integer:
    case Kind::number:
    case Kind::number_pair:
      return expected_number(key);
    case Kind::text:
      return "a text in quotes";
    case Kind::text_list:
      return "a text or a list of texts";
    case Kind::overrides:
      return "tables [[weights.override]] with layers, and method, pattern, block or density";
  }
  return "";
}

std::string value_problem(const ConfigKey& key, const ConfigValue& value) {
  const std::string expected = "expected " + expected_value(key);
  switch (key.kind) {
    case Kind::boolean:
      return "";
    case Kind::integer:
      return number_problem(key, static_cast<double>(std::get<std::int64_t>(value)));
    case Kind::number:
      return number_problem(key, std::get<double>(value));
    case Kind::number_pair: {
      const auto& pair = std::get<std::vector<double>>(value);
      return pair.size() == 2 && in_range(key, pair[0]) && in_range(key, pair[1]) ? "" : expected;
    }
    case Kind::text: {
      const std::string& text = std::get<std::string>(value);
      if (!key.choices.empty()) return choice_problem(key, text);
      return key.valid == nullptr || key.valid(text) ? "" : expected;
    }
    case Kind::text_list:
      for (const std::string& text : std::get<std::vector<std::string>>(value))
        if (key.valid != nullptr && !key.valid(text)) return expected;
      return "";
    case Kind::overrides:
      for (const auto& entry : std::get<std::vector<WeightsConfig::Override>>(value))
        if (const std::string problem = override_problem(entry); !problem.empty()) return problem;
      return "";
  }
  return "";
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, diagonal + 1, row[j] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace filigree
