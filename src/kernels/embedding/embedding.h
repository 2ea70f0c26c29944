// Token embedding plus optional learned positions. B sequences of S tokens, C channels, V tokens in the vocabulary.
//
//   y[b, s] = table[token[b, s]] + positions[start + s]
//
// Tables and y share one type, fp32 or bf16; gradients of tables are fp32 and accumulate. Backward is bitwise
// reproducible and independent of the thread count: each table entry is summed in token order by one thread, on a GPU
// cut into pieces of at most 32 tokens, whose places depend on the tokens alone.
// Token ids must be in [0, V): the loader has checked them.
#pragma once

#include "core/device.h"
#include "core/tensor.h"

namespace filigree {

struct EmbeddingForwardArgs {
  Tensor y;               // (B, S, C)
  Tensor tokens;          // (B, S) int32
  Tensor table;           // (V, C)
  Tensor positions = {};  // (P, C), start + S <= P; empty with rotary positions
  std::int64_t start = 0;
};
void embedding_forward(Device& device, const EmbeddingForwardArgs& args);

struct EmbeddingBackwardArgs {
  Tensor dtable;           // (V, C) fp32, accumulates
  Tensor dpositions = {};  // (P, C) fp32, accumulates
  Tensor dy;               // (B, S, C)
  Tensor tokens;           // (B, S) int32
};
void embedding_backward(Device& device, const EmbeddingBackwardArgs& args);

namespace cuda {  // the same on a GPU: embedding_cuda.cu; called by the functions above
void embedding_forward(Device& device, const EmbeddingForwardArgs& args);
void embedding_backward(Device& device, const EmbeddingBackwardArgs& args);
}  // namespace cuda

}  // namespace filigree
