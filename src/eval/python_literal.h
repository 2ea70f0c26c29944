// Lists, dictionaries and texts as Python writes them: how some published data holds a structure inside a text.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace filigree {

// The value as JSON; `discarded` where the text is none of these. Texts may have Python's escapes.
nlohmann::json parse_python_literal(std::string_view text);

}  // namespace filigree
