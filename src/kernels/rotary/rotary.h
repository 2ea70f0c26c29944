// Rotary positions (Su et al., arXiv 2104.09864), in place on the query and key parts of the packed projection, in the
// half-split form that LLaMA checkpoints use: entry i < D/2 of a head turns with entry i + D/2 by the angle
// position · base^(-2i/D).
//
// fp32 or bf16, arithmetic in fp32. Bitwise reproducible.
#pragma once

#include "core/device.h"
#include "core/tensor.h"

namespace filigree {

struct RotaryArgs {
  Tensor qkv;              // (B, S, (H + 2G)·D), in place; see attention.h
  Tensor table;            // (C, D) fp32: cosines of D/2 angles, then their sines, one row a position
  std::int64_t start = 0;  // position of the first token of each sequence
  int heads = 0;           // H
  int kv_heads = 0;        // G
  bool inverse = false;    // turn back: the backward pass on gradients
};
void rotary(Device& device, const RotaryArgs& args);

// Fills the table for positions [0, C).
void rotary_table(const Tensor& table, double base);

namespace cuda {  // the same on a GPU: rotary_cuda.cu; called by the functions above
void rotary(Device& device, const RotaryArgs& args);
}  // namespace cuda

}  // namespace filigree
