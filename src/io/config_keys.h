// The one table of configuration keys. Reading, checking of single values, writing, comparison, the search for the
// closest key and the reference in the documentation are all driven by it.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "io/config.h"

namespace filigree {

// A key's value, in the order of Kind.
using ConfigValue = std::variant<bool, std::int64_t, double, std::string, std::vector<std::string>, std::vector<double>,
                                 std::vector<WeightsConfig::Override>>;
enum class Kind : std::uint8_t { boolean, integer, number, text, text_list, number_pair, overrides };

// A choice of a text key. `missing` says what a build would need to have it; "" when this one has it.
struct Choice {
  std::string_view name;
  std::string_view missing = "";
};

struct ConfigKey {
  std::string_view name;  // "train.steps"
  Kind kind = Kind::boolean;
  ConfigValue (*get)(const Config&) = nullptr;
  // The value has the key's kind and has passed value_problem().
  void (*set)(Config&, const ConfigValue&) = nullptr;
  std::string_view doc;

  // Numbers: the range, with `above` when the minimum itself is refused, `below` likewise.
  double minimum = -std::numeric_limits<double>::infinity();
  double maximum = std::numeric_limits<double>::infinity();
  bool above = false, below = false;
  // Texts: the choices, or a check with the form that is expected; both empty when any text will do.
  std::vector<Choice> choices = {};
  bool (*valid)(std::string_view) = nullptr;
  std::string_view form = "";
  bool path = false;   // made absolute when read
  bool named = false;  // a path that may have "NAME=" before it
  bool required = false;
  bool resumable = false;  // may differ between a run and its resumption
};

const std::vector<ConfigKey>& config_keys();
const ConfigKey* find_config_key(std::string_view name);

// "an integer of at least 1", "one of \"cosine\", \"linear\", \"constant\"".
std::string expected_value(const ConfigKey& key);
// What is wrong with a value of the right kind, as "expected ..." or "this build ...", "" when nothing.
std::string value_problem(const ConfigKey& key, const ConfigValue& value);

// As it stands in a file: 1.0, "dense", ["a", "b"].
std::string toml_value(const ConfigValue& value);

// The known key that `name` was probably meant to be: another word for it, a few letters apart, or the one containing
// the other; "" where none is near.
std::string_view closest_config_key(std::string_view name);
// What a message about an unknown key adds: that key, else the section's keys, else the sections.
std::string unknown_key_advice(std::string_view name);
// Insertions, deletions and replacements that turn a into b.
std::size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace filigree
