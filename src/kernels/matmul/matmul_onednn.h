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

// Whether oneDNN multiplies bf16 on this processor: it wants AVX-512.
bool onednn_has_bf16();

// All extents at least 1. `bias` is read if the description has it.
void onednn_matmul(Device& device, const MatmulDescription& what, void* y, const void* a, const void* b,
                   const float* bias);

// The same for bf16 operands on any processor: widened to fp32 in scratch memory, multiplied there.
void onednn_matmul_widened(Device& device, const MatmulDescription& what, void* y, const void* a, const void* b,
                           const float* bias);

}  // namespace filigree
