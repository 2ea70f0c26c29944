// The operations on texts that the prompts of evaluation tasks are made with. They do what Python's do, because the
// prompts are defined by Python programs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace filigree {

// Without the white space, Unicode's included, at both ends, or at the right end.
std::string strip(std::string_view text);
std::string strip_right(std::string_view text);
// The first character in upper case, the others in lower case: ASCII and Latin-1 letters.
std::string capitalize(std::string_view text);
std::string replace_all(std::string_view text, std::string_view from, std::string_view to);
// Code points of well-formed UTF-8.
std::int64_t count_characters(std::string_view text);

// Without what stands in square brackets on one line, brackets included.
std::string without_brackets(std::string_view text);

}  // namespace filigree
