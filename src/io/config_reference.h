// The reference of all configuration keys, made from their table: docs/configuration.md is this text.
#pragma once

#include <string>

namespace filigree {

// Markdown: an introduction, then a table of each section with every key's default, values and meaning.
std::string config_reference();

}  // namespace filigree
