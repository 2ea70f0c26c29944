// An N:M pattern: `keep` of every `of` neighbouring entries.
#pragma once

#include <string>

namespace filigree {

struct Pattern {
  int keep = 2;
  int of = 4;

  double density() const { return static_cast<double>(keep) / of; }
  friend bool operator==(const Pattern&, const Pattern&) = default;
};

inline std::string to_string(Pattern pattern) {
  return std::to_string(pattern.keep) + ":" + std::to_string(pattern.of);
}

}  // namespace filigree
