// LayerNorm (Ba et al., arXiv 1607.06450) and RMSNorm (Zhang & Sennrich, arXiv 1910.07467), fused with the residual sum
// in front of them. T tokens, C channels.
//
//   s = x + residual                             (s = x when residual is empty)
//   LayerNorm  y = (s - mean(s)) · rstd · gain + bias,   rstd = 1 / sqrt(var(s) + epsilon)
//   RMSNorm    y = s · rstd · gain,                      rstd = 1 / sqrt(mean(s²) + epsilon)
//
// Activations fp32 or bf16; gain, bias, statistics and their gradients fp32; arithmetic fp32. Statistics are taken of s
// as it is stored. Bitwise reproducible, independent of the thread count: gradients of gain and bias are summed over
// bands of rows, whose cuts depend on the shape alone.
#pragma once

#include "core/device.h"
#include "core/tensor.h"

namespace filigree {

enum class NormKind : std::uint8_t { layer, rms };

struct NormForwardArgs {
  NormKind kind = NormKind::layer;
  Tensor y;              // (T, C)
  Tensor sum = {};       // (T, C) receives s; required with residual; may alias x or residual
  Tensor mean = {};      // (T) fp32, LayerNorm only; empty when no backward follows
  Tensor rstd = {};      // (T) fp32; empty when no backward follows
  Tensor x;              // (T, C)
  Tensor residual = {};  // (T, C), optional
  Tensor gain;           // (C) fp32
  Tensor bias = {};      // (C) fp32, LayerNorm only
  float epsilon = 1e-5f;
};
void norm_forward(Device& device, const NormForwardArgs& args);

struct NormBackwardArgs {
  NormKind kind = NormKind::layer;
  Tensor ds;          // (T, C): gradient of s. Accumulates: the residual stream's gradient is already there
  Tensor dgain;       // (C) fp32, accumulates
  Tensor dbias = {};  // (C) fp32, accumulates; LayerNorm only
  Tensor dy;          // (T, C)
  Tensor sum;         // (T, C): s from forward (x when there was no residual)
  Tensor mean = {};   // (T) fp32
  Tensor rstd;        // (T) fp32
  Tensor gain;        // (C) fp32
};
void norm_backward(Device& device, const NormBackwardArgs& args);

namespace cuda {  // the same on a GPU: norm_cuda.cu, norm_backward_cuda.cu; called by the functions above
void norm_forward(Device& device, const NormForwardArgs& args);
void norm_backward(Device& device, const NormBackwardArgs& args);
}  // namespace cuda

}  // namespace filigree
