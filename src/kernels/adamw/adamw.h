// AdamW with decoupled decay (Loshchilov & Hutter, arXiv 1711.05101) over flat arrays: dense parameters and compressed
// ones look alike here.
//
//   g  = gradient · clip
//   m  = beta1 m + (1 - beta1) g                 v  = beta2 v + (1 - beta2) g²
//   p  = p - lr · decay · p                      p  = p - lr · (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) +
//   epsilon)
//
// p is the fp32 master; where the values are bf16 they receive round-to-nearest-even(p), where they are fp32 master and
// values are the same array. Bitwise reproducible, independent of the thread count, of where a parameter is cut, and of
// the vector width: each element sees the same IEEE operations in the same order (no contraction into FMA), so that a
// compressed parameter and the kept entries of a masked dense one get the same bits.
#pragma once

#include <span>

#include "core/device.h"
#include "core/tensor.h"

namespace filigree {

// What changes from step to step, in one place.
struct StepState {
  float lr = 0.0f;
  float clip = 1.0f;              // gradient factor: 1, or max_norm / norm
  float bias_correction1 = 1.0f;  // 1 - beta1^t
  float bias_correction2 = 1.0f;  // 1 - beta2^t
};

struct AdamWArgs {
  Tensor values;          // (count) fp32 or bf16
  float* master;          // (count); the values' own array when they are fp32
  const float* gradient;  // (count)
  float* m;               // (count)
  float* v;               // (count)
  std::int64_t count = 0;
  StepState step;
  float beta1 = 0.9f;
  float beta2 = 0.95f;
  float epsilon = 1e-8f;
  float decay = 0.0f;
};
// Updates each of the parameters. They must not overlap. On a GPU in one launch, for which at most 32 different
// settings (step, betas, epsilon, decay) may occur, and with the processor's bits.
void adamw(Device& device, std::span<const AdamWArgs> parameters);
inline void adamw(Device& device, const AdamWArgs& parameter) {
  adamw(device, std::span(&parameter, 1));
}

namespace cuda {  // the same on a GPU: adamw_cuda.cu; called by the function above
void adamw(Device& device, std::span<const AdamWArgs> parameters);
}  // namespace cuda

}  // namespace filigree
