// The bias of a product whose epilogue cannot add it.
#pragma once

#include "core/device.h"
#include "core/tensor.h"

namespace filigree::cuda {

// y[m, n] = bias[n], or y[m, n] += bias[n] when `add`. y (M, N) fp32 or bf16, bias (N) fp32. In the device's stream.
void write_bias(Device& device, const Tensor& y, const Tensor& bias, bool add);

}  // namespace filigree::cuda
