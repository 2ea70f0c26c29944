// Causal scaled-dot-product attention with grouped queries (FlashAttention's recurrence: Dao et al., arXiv 2205.14135).
// The (S, S) score matrix is never stored: forward keeps the log-sum-exp of each row, backward recomputes the scores.
//
// Letters: B sequences, S positions, H query heads, G key/value heads (H a multiple of G), D head size.
// The packed projection has a row per token: H·D query, then G·D key, then G·D value entries.
//
//   out[b, i, h] = sum over j <= i of softmax_j(q[b, i, h] · k[b, j, h·G/H] / sqrt(D)) · v[b, j, h·G/H]
//
// Types: fp32 or bf16 tensors, fp32 arithmetic (bf16 products may use the processor's bf16 dot product with fp32
// accumulation). Nothing aliases. Bitwise reproducible; on a GPU the backward pass only with Device::deterministic(),
// which costs B · H · S² · 2 bytes of scratch there.
//
// On a GPU, cuDNN serves bf16 and our own kernels the rest (attention_cuda.h), with head sizes of at most 256. What
// cuDNN has for a shape is built once and kept in the Device.
#pragma once

#include "core/device.h"
#include "core/tensor.h"

namespace filigree {

struct AttentionForwardArgs {
  Tensor out;             // (B, S, H·D)
  Tensor logsumexp = {};  // (B, H, S) fp32; empty when no backward follows
  Tensor qkv;             // (B, S, (H + 2G)·D)
  int heads = 0;          // H
  int kv_heads = 0;       // G
};
void attention_forward(Device& device, const AttentionForwardArgs& args);

struct AttentionBackwardArgs {
  Tensor dqkv;       // (B, S, (H + 2G)·D), overwritten
  Tensor dout;       // (B, S, H·D)
  Tensor out;        // (B, S, H·D), from forward
  Tensor logsumexp;  // (B, H, S) fp32, from forward
  Tensor qkv;        // (B, S, (H + 2G)·D)
  int heads = 0;
  int kv_heads = 0;
};
void attention_backward(Device& device, const AttentionBackwardArgs& args);

// `count` new tokens a sequence against a cache: first writes their keys and values to positions
// [start, start + count) of the cache, then attends to positions [0, position]. count = the prompt's length, then 1.
struct AttentionCachedArgs {
  Tensor out;              // (B, count, H·D)
  Tensor qkv;              // (B, count, (H + 2G)·D), rotary positions already applied
  Tensor keys;             // (B, C, G·D) cache of context C
  Tensor values;           // (B, C, G·D)
  std::int64_t start = 0;  // tokens in the cache before this call
  int heads = 0;
  int kv_heads = 0;
};
void attention_cached(Device& device, const AttentionCachedArgs& args);

namespace cuda {  // the same on a GPU; called by the functions above
void attention_forward(Device& device, const AttentionForwardArgs& args);
void attention_backward(Device& device, const AttentionBackwardArgs& args);
void attention_cached(Device& device, const AttentionCachedArgs& args);
}  // namespace cuda

}  // namespace filigree
