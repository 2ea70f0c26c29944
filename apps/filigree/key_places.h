// Where a configuration's key stands, added to mistakes that only the data or the machine shows.
#pragma once

#include <span>
#include <string>

#include "core/error.h"
#include "io/config_keys.h"
#include "io/config_toml.h"

namespace filigree {

// The mistake, with the place of the key that its text begins with, if it begins with one.
inline UserError placed(const UserError& error, const std::string& file, std::span<const std::string> overrides) {
  const std::string text = error.what();
  const std::string key = text.substr(0, text.find_first_of(": "));
  return find_config_key(key) == nullptr ? error : UserError(key_place(file, overrides, key) + ": " + text);
}

}  // namespace filigree
