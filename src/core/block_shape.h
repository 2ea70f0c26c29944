// The shape of a block of a block-sparse weight.
#pragma once

#include <string>

namespace filigree {

struct BlockShape {
  int rows = 128;     // outputs
  int columns = 128;  // inputs

  bool chosen() const { return rows > 0; }  // kAutoBlock is not

  friend bool operator==(const BlockShape&, const BlockShape&) = default;
};

// Left to the device.
inline constexpr BlockShape kAutoBlock{0, 0};

// What a device likes: on a GPU the block of its fast kernels; on the CPU any block is as fast, and a small one learns
// better.
constexpr BlockShape default_block(bool gpu) {
  return gpu ? BlockShape{128, 128} : BlockShape{16, 16};
}

inline std::string to_string(BlockShape block) {
  return block.chosen() ? std::to_string(block.rows) + "x" + std::to_string(block.columns) : "auto";
}

}  // namespace filigree
