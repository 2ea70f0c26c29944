// Softmax cross-entropy on one chunk of tokens, in place. The caller loops over chunks, so that the logits of a whole
// batch never exist at once. T tokens of the chunk, V vocabulary entries.
//
//   loss[t]   = logsumexp(logits[t]) - logits[t, target[t]]        (natural log; 0 where target < 0: ignored)
//   logits[t] = (softmax(logits[t]) - onehot(target[t])) · scale   (the gradient; 0 where target < 0)
//
// logits fp32 or bf16, arithmetic fp32, loss fp32. Bitwise reproducible, independent of the thread count.
#pragma once

#include "core/device.h"
#include "core/tensor.h"

namespace filigree {

struct CrossEntropyArgs {
  Tensor loss;         // (T) fp32
  Tensor logits;       // (T, V or more); overwritten by the gradient unless `loss_only`
  Tensor targets;      // (T) int32, below V: the CPU throws for a larger one, a GPU makes its loss NaN
  Tensor greedy = {};  // (T) int32, or empty: 1 where no logit is above the target's, 0 elsewhere and where target < 0
  // V, when the rows of logits are longer: what is behind is not read, and has gradient 0. 0: all of a row.
  std::int64_t vocabulary = 0;
  float scale = 1.0f;  // usually 1 / tokens of the batch
  bool loss_only = false;
};
void cross_entropy(Device& device, const CrossEntropyArgs& args);

namespace cuda {  // the same on a GPU: cross_entropy_cuda.cu; called by the functions above
void cross_entropy(Device& device, const CrossEntropyArgs& args);
}  // namespace cuda

}  // namespace filigree
