// oneDNN's matrix product behind a header without oneDNN types. Built once per shape, types and options, and kept in
// the Device.
#pragma once

#include "kernels/matmul/matmul.h"

namespace filigree {

// Whether oneDNN multiplies bf16 on this processor: it wants AVX-512.
bool onednn_has_bf16();

// All extents at least 1, no stride.
void onednn_matmul(Device& device, const MatmulArgs& args);

// The same for bf16 operands on any processor: widened to fp32 in scratch memory, multiplied there.
void onednn_matmul_widened(Device& device, const MatmulArgs& args);

}  // namespace filigree
