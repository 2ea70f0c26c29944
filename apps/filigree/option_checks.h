// Checks of command line options that several commands share.
#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdint>
#include <string>

namespace filigree {

// CLI11's own checks of ranges name the largest double as the upper bound, with all of its digits.
inline CLI::Validator at_least(std::int64_t minimum) {
  return {[minimum](std::string& text) -> std::string {
            std::int64_t value = 0;
            const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
            if (error == std::errc() && end == text.data() + text.size() && value >= minimum) return "";
            return "found " + text + ", expected an integer of at least " + std::to_string(minimum);
          },
          ""};
}

}  // namespace filigree
