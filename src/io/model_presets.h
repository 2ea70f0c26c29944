// Model shapes by name, with the shapes that were published, and what follows from a shape.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "io/config.h"

namespace filigree {

// In the order in which they are shown to users.
const std::vector<ModelConfig>& model_presets();
std::optional<ModelConfig> model_preset(std::string_view name);

// Fills kv_heads and ffn where they are 0, as config.h says. vocab stays 0 until the tokenizer is known.
void resolve_shape(ModelConfig& model);

// Weights, biases, gains and embeddings of the resolved dense model; a tied head is counted once. The position table of
// gpt2 and opt has `context` rows (the published OPT checkpoints have two more that are never used).
std::int64_t parameter_count(const ModelConfig& model);

// Rows that a model's embedding and head have for a tokenizer of `entries`: rounded up to a multiple of 64 from 1024
// entries on, because rows of logits of an odd length make slow products. The added ids occur in no text, and
// generation never chooses them.
std::int64_t padded_vocab(std::int64_t entries);

}  // namespace filigree
