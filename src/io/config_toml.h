// A run's configuration as TOML. Every mistake of the user is a UserError that says where (file:line or --set, and the
// key), what was found and what would be right; a file with several mistakes gives them all at once, one a line.
#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/config.h"

namespace filigree {

// Reads a file, applies `overrides` ("key=value", the value in TOML or a bare word; later ones win), fills in the
// preset and what follows from it, and checks everything that can be checked without data. Paths in the file are
// relative to its folder, those in overrides to the current one; both come out absolute.
Config read_config(const std::filesystem::path& file, std::span<const std::string> overrides = {});

// The same for a text: `name` stands in messages, `folder` is what its paths are relative to.
Config parse_config(std::string_view text, const std::string& name, const std::filesystem::path& folder,
                    std::span<const std::string> overrides = {});

// Where a key's value stands in what read_config has accepted, as messages say it: "run.toml:7", "--set", or the file
// where the key is not given. For mistakes that only the data shows.
std::string key_place(const std::filesystem::path& file, std::span<const std::string> overrides, std::string_view key);

// Checks that span several keys (divisibility, layer names, ...). `where` gives the place of a key for messages, e.g.
// "run.toml:7". Throws one UserError with all problems. read_config has called it already.
void check_config(const Config& config, const std::function<std::string(std::string_view key)>& where = {});

// Every key with its value, in the table's order. Reading it back gives an equal Config, provided that it passed the
// checks and that its paths are absolute.
std::string write_config(const Config& config);

struct ConfigChange {
  std::string key;
  std::string before, after;  // as TOML
  bool resumable = false;     // may differ between a run and its resumption
};
// The keys in which two configurations differ, in the table's order.
std::vector<ConfigChange> difference(const Config& before, const Config& after);

}  // namespace filigree
