// The shape of a block of a block-sparse weight.
#pragma once

#include <string>

namespace filigree {

struct BlockShape {
  int rows = 128;     // outputs
  int columns = 128;  // inputs

  friend bool operator==(const BlockShape&, const BlockShape&) = default;
};

inline std::string to_string(BlockShape block) {
  return std::to_string(block.rows) + "x" + std::to_string(block.columns);
}

}  // namespace filigree
