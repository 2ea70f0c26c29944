#include "io/config_reference.h"

#include "io/config_keys.h"

namespace filigree {

namespace {

constexpr std::string_view kIntroduction = R"(# Configuration

A configuration is a TOML file. `filigree train --keys` prints this page; a test keeps the two alike.

- Any key can be set from the command line as well: `--set train.lr=2e-3`, `--set 'data.train=["a.bin", "b.bin"]'`. A text
  needs no quotes there. Paths in the file are relative to the file's folder, paths in `--set` to the current folder.
- *required* keys have no default. *preset* is what `model.preset` says; without a preset the key is required.
- A run is resumed with the same file and the same `--set`. Only keys that are marked **r** may change then, and paths: a
  run, its data and its text may lie elsewhere, but the tokens must be the same ones. `data.train` and `data.val` name
  their new place; with relative paths a folder that holds all of it can be moved or copied as a whole.
)";

std::string default_of(const ConfigKey& key) {
  if (key.required) return "*required*";
  const ConfigValue value = key.get(Config{});
  return value_problem(key, value).empty() ? std::string("`").append(toml_value(value)) + "`" : "*preset*";
}

// Stars of layer patterns would be read as emphasis.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '*') out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

std::string config_reference() {
  std::string text(kIntroduction);
  std::string_view section;
  for (const ConfigKey& key : config_keys()) {
    const std::string_view this_section = key.name.substr(0, key.name.find('.'));
    if (this_section != section) {
      section = this_section;
      text += "\n## [" + std::string(section) +
              "]\n\n| key | | default | values | meaning |\n| --- | --- | --- | --- | --- |\n";
    }
    text += "| `" + std::string(key.name) + "` | " + (key.resumable ? "**r**" : "") + " | " + default_of(key) + " | " +
            escaped(expected_value(key)) + " | " + escaped(key.doc) + " |\n";
  }
  return text;
}

}  // namespace filigree
