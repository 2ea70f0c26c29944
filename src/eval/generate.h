// Text generation with a key-value cache.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "eval/sampling.h"
#include "model/transformer.h"

namespace filigree {

// Prompts are read in pieces of this many tokens: what the activations of a Generator have room for.
inline constexpr std::int64_t kPromptPiece = 256;

// One sequence. When the model's context is full the cache starts again from the last half of it, so that text of any
// length can be made.
class Generator {
 public:
  // `vocabulary`: ids at and above it are never chosen, where a model has more entries than its tokenizer. 0: all may
  // be.
  Generator(Device& device, Transformer& model, std::int64_t vocabulary = 0);

  // Continues `prompt` (at least one token) by `count` tokens, or until `stop` returns true for a new token; calls it
  // for each. Returns the new tokens.
  std::vector<std::int32_t> generate(std::span<const std::int32_t> prompt, std::int64_t count,
                                     const SamplingOptions& options, const std::function<bool(std::int32_t)>& stop);

 private:
  void read(std::span<const std::int32_t> ids);

  Device& device_;
  Transformer& model_;
  std::int64_t vocabulary_;
  Activations activations_;
  KeyValueCache cache_;
  OwnedTensor tokens_;  // (1, kPromptPiece) int32
  OwnedTensor logits_;  // (1, V)
  std::vector<std::byte> host_logits_;
};

}  // namespace filigree
