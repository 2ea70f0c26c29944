// N:M compressed matrices: the storage that SLoPe's parameters live in.
//
// A pattern keeps `keep` of every `of` neighbouring entries along a row. A matrix of `rows` x `columns` is stored as
//   values  (rows, columns · keep / of), row-major, kept entries from left to right
//   mask    (rows, mask_bytes(columns)) uint8: one bit an entry, least significant bit first; 1 = kept
// For 2:4 that is 4 bits a group of four, the size of the hardware's metadata; the values have the order of
// cuSPARSELt's buffer. The mask is the only record of which entries are kept: a kept entry that is zero keeps its
// place. The same bytes are a checkpoint's canonical form.
#pragma once

#include <cstdint>

#include "core/pattern.h"
#include "core/tensor.h"

namespace filigree {

constexpr std::int64_t mask_bytes(std::int64_t columns) {
  return (columns + 7) / 8;
}
constexpr std::int64_t kept_columns(std::int64_t columns, Pattern pattern) {
  return columns / pattern.of * pattern.keep;
}

// A view. columns is a multiple of pattern.of; 1 <= keep < of <= 32.
struct NmMatrix {
  Tensor values;  // (rows, kept_columns) fp32 or bf16
  Tensor mask;    // (rows, mask_bytes) uint8
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  Pattern pattern;
  // On a GPU, where cuSPARSELt multiplies the matrix: its metadata, in memory directly behind the values
  // (nm_cusparselt.h). Empty: none is kept.
  Tensor metadata = {};
};

}  // namespace filigree
