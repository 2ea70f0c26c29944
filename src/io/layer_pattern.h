// Names of layers with wildcards, as `weights.dense_layers` and `weights.override` take them, and patterns and blocks
// as text.
//
//   *      any run of characters, dots included: "blocks.*.mlp.*", "*.qkv"
//   A-B    as a whole part between dots, a number from A to B: "blocks.0-3.*"
//   else   itself
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/block_shape.h"
#include "core/pattern.h"

namespace filigree {

// Whether the whole name fits. The time is the product of the lengths, whatever the pattern.
bool matches_layer(std::string_view pattern, std::string_view name);

// What is wrong with a pattern, "" when nothing: empty, a character that no layer's name has, or a range A-B with A >
// B.
std::string layer_pattern_problem(std::string_view pattern);

// "2:4" -> Pattern{2, 4}; nothing unless 1 <= keep < of <= 32.
std::optional<Pattern> parse_pattern(std::string_view text);

// "16x32" -> BlockShape{16, 32}, "auto" -> kAutoBlock; nothing unless both extents are from 4 to 1024.
std::optional<BlockShape> parse_block(std::string_view text);

}  // namespace filigree
