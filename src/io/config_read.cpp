#include <toml++/toml.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "core/error.h"
#include "io/atomic_file.h"
#include "io/config_keys.h"
#include "io/config_toml.h"
#include "io/hub/hub_weights.h"
#include "io/model_presets.h"
#include "io/tokenizer_rule.h"

namespace filigree {

namespace fs = std::filesystem;

namespace {

constexpr std::uint64_t kMaxFileBytes = 1 << 20;  // a configuration of a megabyte is another file given by mistake
constexpr std::size_t kMaxProblems = 20;          // shown at once: more is another kind of file
constexpr std::string_view kCommandLine = "--set";

// Where a message points: "run.toml:7" and 7; what is in no file comes after all that is.
struct Place {
  std::string text;
  std::uint32_t line = std::numeric_limits<std::uint32_t>::max();
};

// Where a value stands and what its paths are relative to.
struct Origin {
  std::string name;  // the file's, or "--set"
  fs::path folder;
  bool is_file = true;

  Place at(const toml::source_region& region) const {
    if (!is_file || !region.begin) return {name};
    return {name + ":" + std::to_string(region.begin.line), region.begin.line};
  }
};

// Long values are cut: a message must stay readable.
std::string shortened(std::string text) {
  constexpr std::size_t most = 80;
  if (text.size() > most) text = text.substr(0, most) + "...";
  return text;
}

// A value as a message shows it.
std::string shown(const toml::node& node) {
  if (const auto* text = node.as_string()) return shortened(toml_value(text->get()));
  if (const auto* number = node.as_integer()) return toml_value(number->get());
  if (const auto* number = node.as_floating_point()) return toml_value(number->get());
  if (const auto* flag = node.as_boolean()) return toml_value(flag->get());
  if (const auto* list = node.as_array()) return "a list of " + std::to_string(list->size());
  return node.is_table() ? "a table" : "a date or time";
}

std::optional<double> as_number(const toml::node& node) {
  if (const auto* number = node.as_floating_point()) return number->get();
  if (const auto* number = node.as_integer()) return static_cast<double>(number->get());
  return {};
}

// The node as a value of the key's kind; nothing when it is of another kind. Overrides are read elsewhere.
std::optional<ConfigValue> as_kind(Kind kind, const toml::node& node) {
  switch (kind) {
    case Kind::boolean:
      if (const auto* flag = node.as_boolean()) return flag->get();
      return {};
    case Kind::integer:
      if (const auto* number = node.as_integer()) return number->get();
      return {};
    case Kind::number:
      if (const auto number = as_number(node)) return *number;
      return {};
    case Kind::text:
      if (const auto* text = node.as_string()) return text->get();
      return {};
    case Kind::text_list: {
      if (const auto* text = node.as_string()) return std::vector<std::string>{text->get()};
      if (!node.is_array()) return {};
      std::vector<std::string> list;
      for (const toml::node& item : *node.as_array()) {
        if (!item.is_string()) return {};
        list.push_back(item.as_string()->get());
      }
      return list;
    }
    case Kind::number_pair: {
      if (!node.is_array()) return {};
      std::vector<double> list;
      for (const toml::node& item : *node.as_array()) {
        const auto number = as_number(item);
        if (!number) return {};
        list.push_back(*number);
      }
      return list;
    }
    case Kind::overrides:
      return {};
  }
  return {};
}

class Reader {
 public:
  void read_text(std::string_view text, const Origin& origin) {
    const toml::table root = parse_file(text, origin);
    for (const auto& [section, node] : root) {
      const toml::table* keys = node.as_table();
      if (keys == nullptr || keys->empty()) {
        read_top_level(std::string(section.str()), section.source(), keys != nullptr, origin);
        continue;
      }
      for (const auto& [leaf, value] : *keys)
        read_value(std::string(section.str()) + "." + std::string(leaf.str()), value, leaf.source(), origin, {});
    }
  }

  void read_override(const std::string& text, const Origin& origin) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0)
      return report({origin.name}, "found \"" + shortened(text) + "\", expected key=value");
    const std::string name = text.substr(0, equals);
    const std::string word = text.substr(equals + 1);
    const auto parsed = parse_word(word);
    if (!parsed)
      return report({origin.name}, name,
                    "found " + shortened(word) + ", which is no TOML value; texts within need quotes");
    const toml::node& node = *parsed->get("value");
    read_value(name, node, node.source(), origin, word);
  }

  // Where the value of `key` stands, that of a preset for what follows from it; nothing where it is not given.
  std::optional<std::string> place_of(std::string_view key) const {
    auto found = values_.find(key);
    if (found == values_.end() && key.starts_with("model.")) found = values_.find("model.preset");
    if (found == values_.end()) return {};
    return found->second.where;
  }

  // The configuration of everything read so far, presets filled in.
  Config finish(const std::string& file) {
    for (const ConfigKey& key : config_keys())
      if (key.required && !seen_.contains(key.name))
        report({file},
               std::string(key.name) + " is missing: " + std::string(key.doc) + "; expected " + expected_value(key));
    throw_problems();

    Config config;
    fill_from_init(config.model);
    if (const auto preset = values_.find("model.preset"); preset != values_.end())
      if (auto model = model_preset(std::get<std::string>(preset->second.value))) config.model = *std::move(model);
    for (const ConfigKey& key : config_keys())
      if (const auto found = values_.find(key.name); found != values_.end()) key.set(config, found->second.value);
    if (!values_.contains("model.tied") && !shape_from_init_) config.model.tied = config.model.arch != "llama";
    if (!config.weights.block.chosen() && config.run.device == "cuda") config.weights.block = default_block(true);
    if (config.model.layers == 0 || config.model.width == 0 || config.model.heads == 0 || config.model.context == 0)
      throw UserError(file +
                      ": the model has no shape; expected model.preset, or model.layers, model.width, "
                      "model.heads and model.context, or model.init, a model to start from");
    resolve_shape(config.model);
    check_config(config, [&](std::string_view key) { return place_of(key).value_or(file); });
    return config;
  }

 private:
  struct Given {
    ConfigValue value;
    std::string where;
  };

  // A model that goes on from another has that one's shape, where the configuration does not say it in full. (A run's
  // resolved configuration always does, so that this ends with the first run.)
  void fill_from_init(ModelConfig& model) {
    const auto init = values_.find("model.init");
    const auto given = [&](const char* key) { return values_.contains(key); };
    if (init == values_.end() || given("model.preset")) return;
    if (given("model.layers") && given("model.width") && given("model.heads") && given("model.context")) return;
    const fs::path folder = std::get<std::string>(init->second.value);
    const auto context = values_.find("model.context");
    try {
      if (is_hub_folder(folder))
        model =
            read_hub_config(folder, context == values_.end() ? 0 : std::get<std::int64_t>(context->second.value)).model;
      else if (fs::exists(folder / "config.toml"))
        model = read_config(folder / "config.toml").model;
      else
        return;
    } catch (const UserError& error) {
      throw UserError(init->second.where + ": model.init: " + error.what());
    }
    model.preset = "";
    shape_from_init_ = true;
  }

  static toml::table parse_file(std::string_view text, const Origin& origin) {
    try {
      return toml::parse(text, origin.name);
    } catch (const toml::parse_error& error) {
      throw UserError(origin.at(error.source()).text +
                      ": not valid TOML: " + shortened(std::string(error.description())));
    }
  }

  // `word` as a TOML value, or as the text that it is; nothing for a list, table or quotation with a mistake in it.
  static std::optional<toml::table> parse_word(const std::string& word) {
    try {
      toml::table parsed = toml::parse("value = " + word);
      if (parsed.size() == 1) return parsed;
    } catch (const toml::parse_error&) {
      if (word.find_first_of("[{\"'") == 0) return {};
    }
    return toml::table{{"value", word}};  // a bare word: slope, 2:4, data/*.bin
  }

  void report(const Place& place, const std::string& text) {
    problems_.push_back({place.line, place.text + ": " + text});
    if (problems_.size() == kMaxProblems) throw_problems();
  }
  void report(const Place& place, const std::string& name, const std::string& text) {
    report(place, shortened(name) + ": " + text);
  }

  void report_unknown(const Place& place, const std::string& name) {
    const auto in_section = [&](const ConfigKey& key) { return key.name.starts_with(name + "."); };
    const auto section = std::find_if(config_keys().begin(), config_keys().end(), in_section);
    if (section != config_keys().end())
      report(place, name, "a section, not a key; expected a key in it, such as " + std::string(section->name));
    else
      report(place, name, "unknown key; " + unknown_key_advice(name));
  }

  // A key outside any section, or a section without keys. An empty section of known name is no mistake.
  void read_top_level(const std::string& name, const toml::source_region& region, bool section, const Origin& origin) {
    const auto in_section = [&](const ConfigKey& key) { return key.name.starts_with(name + "."); };
    if (section && std::any_of(config_keys().begin(), config_keys().end(), in_section)) return;
    report_unknown(origin.at(region), name);
  }

  // `word`: the value as it was typed on the command line; a key that takes text takes it as it is.
  void read_value(const std::string& name, const toml::node& node, const toml::source_region& region,
                  const Origin& origin, const std::optional<std::string>& word) {
    const Place where = origin.at(region);
    const ConfigKey* key = find_config_key(name);
    if (key == nullptr) return report_unknown(where, name);
    seen_.insert(key->name);
    if (key->kind == Kind::overrides) return read_layer_overrides(*key, node, where, origin);

    auto value = as_kind(key->kind, node);
    if (!value && word && node.is_value() && key->kind == Kind::text) value = *word;
    if (!value && word && node.is_value() && key->kind == Kind::text_list) value = std::vector<std::string>{*word};
    if (!value) return report(where, name, "found " + shown(node) + ", expected " + expected_value(*key));
    if (const std::string problem = value_problem(*key, *value); !problem.empty())
      return report(where, name, "found " + shortened(toml_value(*value)) + ", " + problem);
    if (key->path) make_absolute(*value, origin.folder, key->named);
    values_.insert_or_assign(name, Given{*std::move(value), where.text});
  }

  void read_layer_overrides(const ConfigKey& key, const toml::node& node, const Place& where, const Origin& origin) {
    const std::string name(key.name);
    const std::string expected = "expected " + expected_value(key);
    const toml::array* list = node.as_array();
    if (list == nullptr) return report(where, name, "found " + shown(node) + ", " + expected);
    std::vector<WeightsConfig::Override> overrides;
    for (const toml::node& item : *list) {
      const toml::table* fields = item.as_table();
      if (fields == nullptr) return report(origin.at(item.source()), name, "found " + shown(item) + ", " + expected);
      WeightsConfig::Override entry;
      for (const auto& [field, value] : *fields) {
        const Place at = origin.at(field.source());
        const std::string full = name + "." + std::string(field.str());
        std::string* member = field == "layers"    ? &entry.layers
                              : field == "method"  ? &entry.method
                              : field == "pattern" ? &entry.pattern
                              : field == "block"   ? &entry.block
                                                   : nullptr;
        if (field == "density") {
          const auto number = as_number(value);
          if (!number || *number == 0.0)
            return report(at, full, "found " + shown(value) + ", expected a number above 0 and at most 1");
          entry.density = *number;
          continue;
        }
        if (member == nullptr)
          return report(at, full, "unknown key; an override has layers, method, pattern, block and density");
        if (!value.is_string()) return report(at, full, "found " + shown(value) + ", expected a text in quotes");
        *member = value.as_string()->get();
      }
      const ConfigValue one = std::vector<WeightsConfig::Override>{entry};
      if (const std::string problem = value_problem(key, one); !problem.empty())
        return report(origin.at(item.source()), name, "found " + shortened(toml_value(one)) + ", " + problem);
      overrides.push_back(std::move(entry));
    }
    values_.insert_or_assign(name, Given{std::move(overrides), where.text});
  }

  static void make_absolute(ConfigValue& value, const fs::path& folder, bool named) {
    const auto absolute = [&](std::string& text) {
      const bool rule = text == "bytes" || sentencepiece_vocab(text);  // of a tokenizer
      if (text.empty() || rule) return;
      const std::size_t name = named ? text.find('=') + 1 : 0;  // 0 without a name
      fs::path path = (folder / text.substr(name)).lexically_normal();
      if (!path.has_filename()) path = path.parent_path();  // a trailing slash
      text = text.substr(0, name) + path.string();
    };
    if (auto* text = std::get_if<std::string>(&value)) absolute(*text);
    if (auto* list = std::get_if<std::vector<std::string>>(&value))
      for (std::string& text : *list) absolute(text);
  }

  // In the file's order.
  void throw_problems() {
    if (problems_.empty()) return;
    std::stable_sort(problems_.begin(), problems_.end(), [](const auto& a, const auto& b) { return a.line < b.line; });
    std::string text;
    for (const Problem& problem : problems_) text += (text.empty() ? "" : "\n") + problem.text;
    throw UserError(text);
  }

  struct Problem {
    std::uint32_t line;
    std::string text;
  };
  std::map<std::string, Given, std::less<>> values_;
  bool shape_from_init_ = false;
  std::set<std::string_view> seen_;  // known keys, whether or not their value was right
  std::vector<Problem> problems_;
};

Reader read_all(std::string_view text, const std::string& name, const fs::path& folder,
                std::span<const std::string> overrides) {
  Reader reader;
  reader.read_text(text, {name, fs::absolute(folder), true});
  for (const std::string& override_text : overrides)
    reader.read_override(override_text, {std::string(kCommandLine), fs::current_path(), false});
  return reader;
}

}  // namespace

Config parse_config(std::string_view text, const std::string& name, const fs::path& folder,
                    std::span<const std::string> overrides) {
  return read_all(text, name, folder, overrides).finish(name);
}

Config read_config(const fs::path& file, std::span<const std::string> overrides) {
  return parse_config(read_file(file, kMaxFileBytes), file.string(), fs::absolute(file).parent_path(), overrides);
}

std::string key_place(const fs::path& file, std::span<const std::string> overrides, std::string_view key) {
  return read_all(read_file(file, kMaxFileBytes), file.string(), fs::absolute(file).parent_path(), overrides)
      .place_of(key)
      .value_or(file.string());
}

}  // namespace filigree
