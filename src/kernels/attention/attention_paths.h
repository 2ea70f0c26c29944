// The implementations behind attention.h, and what they share. Arguments have been checked; no extent is 0.
#pragma once

#include <cmath>
#include <numbers>

#include "kernels/attention/attention.h"

namespace filigree {

// Extents and places in the packed projection; letters as in attention.h.
struct AttentionShape {
  std::int64_t sequences = 0;  // B
  std::int64_t positions = 0;  // S
  std::int64_t heads = 0;      // H
  std::int64_t kv_heads = 0;   // G
  std::int64_t size = 0;       // D

  std::int64_t group() const { return heads / kv_heads; }
  std::int64_t row() const { return (heads + 2 * kv_heads) * size; }  // of the packed projection
  std::int64_t out_row() const { return heads * size; }
  // Columns of the packed projection at which a head begins.
  std::int64_t query(std::int64_t head) const { return head * size; }
  std::int64_t key(std::int64_t kv_head) const { return (heads + kv_head) * size; }
  std::int64_t value(std::int64_t kv_head) const { return (heads + kv_heads + kv_head) * size; }
  // Scores are kept in base 2: this factor on q · k replaces 1 / sqrt(D), and exp2 the exponential.
  float score_factor() const { return static_cast<float>(std::numbers::log2e / std::sqrt(static_cast<double>(size))); }
};
AttentionShape attention_shape(const Tensor& qkv, int heads, int kv_heads);

// fp32 arithmetic in vector registers; any type, size and processor.
void attention_forward_vector(Device& device, const AttentionForwardArgs& args);
void attention_backward_vector(Device& device, const AttentionBackwardArgs& args);
void attention_cached_vector(Device& device, const AttentionCachedArgs& args);

// bf16 on AMX tiles, for head sizes that are a multiple of 32.
void attention_forward_amx(Device& device, const AttentionForwardArgs& args);
void attention_backward_amx(Device& device, const AttentionBackwardArgs& args);

}  // namespace filigree
