// The N:M products of a SLoPe layer (format: nm_format.h). T tokens, K inputs, N outputs.
//
//   nm_matmul          y (T, N) = scale · x (T, K) · Wᵀ + bias,  W (N, K) compressed along K     [+ y when accumulate]
//                      dX is the same product with dy (T, N) and (W^{R,C})ᵀ (K, N) compressed along N
//   nm_matmul_gradient grad (N, K·keep/of) = kept entries of dyᵀ x                              [+ grad when
//   accumulate]
//
// Types: x, dy, W values fp32 or bf16 alike; y fp32, or bf16 with bf16 operands; bias and grad fp32. fp32 accumulation.
// Nothing aliases. Bitwise reproducible on one processor kind and independent of the thread count. Any pattern, any
// shape; how fast, and on which vector units, is said in nm_matmul_cpu.cpp.
//
// On a GPU nm_matmul multiplies what cuSPARSELt serves, with a plan made before (nm_cusparselt.h), and without one 1 to
// 16 tokens by a 2:4 matrix in bf16 (nm_decode_cuda.h); it refuses all else. nm_matmul_gradient is for processors. What
// they refuse is a dense product after nm_expand, or before nm_compress.
#pragma once

#include "core/device.h"
#include "kernels/nm/nm_format.h"

namespace filigree {

struct NmMatmulArgs {
  Tensor y;          // (T, N)
  Tensor x;          // (T, K)
  NmMatrix weight;   // (N, K)
  Tensor bias = {};  // (N) fp32, optional
  float scale = 1.0f;
  bool accumulate = false;
};
void nm_matmul(Device& device, const NmMatmulArgs& args);

struct NmGradientArgs {
  Tensor gradient;  // (N, K·keep/of) fp32
  Tensor dy;        // (T, N)
  Tensor x;         // (T, K)
  Tensor mask;      // (N, mask_bytes(K)) uint8
  Pattern pattern;
  bool accumulate = false;
};
void nm_matmul_gradient(Device& device, const NmGradientArgs& args);

namespace cuda {  // the same on a GPU; called by the function above
void nm_matmul(Device& device, const NmMatmulArgs& args);
bool nm_matmul_serves(Device& device, const NmMatmulArgs& args);  // now, that is with the plans there are
}  // namespace cuda

}  // namespace filigree
