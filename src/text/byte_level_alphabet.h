// The alphabet of byte-level tokenizers' files (GPT-2): a printable character for each byte, so that tokens of any
// bytes can be written as text. Printable bytes of Latin-1 are themselves; the other 68 are U+0100 and up, in their
// order.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace filigree {

std::string byte_level_text(std::string_view bytes);
// The bytes of a text; nothing where a character of it stands for none.
std::optional<std::string> byte_level_bytes(std::string_view text);

}  // namespace filigree
