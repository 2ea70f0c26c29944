// oneDNN's matrix product behind a header without oneDNN types. Built once per description, kept in the Device.
#pragma once

#include "core/device.h"

namespace filigree {

// y (M, N) = scale · op(a) op(b) + bias [+ y]
struct MatmulDescription {
  std::int64_t rows = 0;     // M
  std::int64_t columns = 0;  // N
  std::int64_t depth = 0;    // K
  DType operands = DType::f32;
  DType result = DType::f32;
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;
  bool bias = false;
  float scale = 1.0f;
  int threads = 1;  // oneDNN plans for OpenMP's thread count

  friend bool operator==(const MatmulDescription&, const MatmulDescription&) = default;
};

// All extents at least 1. `bias` is read if the description has it.
void onednn_matmul(Device& device, const MatmulDescription& what, void* y, const void* a, const void* b,
                   const float* bias);

}  // namespace filigree
