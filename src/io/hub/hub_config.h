// config.json of a Hugging Face folder: which model it is, and whether it is one that filigree computes in the same
// way.
//
//   model_type   becomes arch
//   gpt2         gpt2     learned positions, GELU (tanh form), fused projection
//   opt          opt      learned positions, ReLU; norms before the layers (all sizes but 350M)
//   llama        llama    2 and 3 style, grouped key and value heads; without scaled rotary positions
//   mistral      llama    where the sliding window covers the context
//
// Keys that change what is computed are checked one by one; a value that filigree does not compute is a UserError that
// says so. Keys that say nothing about the computation (dropout, summaries, initialisation) are passed over; what
// neither list has is reported.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "io/config.h"

namespace filigree {

struct HubModel {
  std::string type;                 // model_type
  ModelConfig model;                // resolved, its vocabulary known
  std::int64_t stored_context = 0;  // rows of a learned position table, at least model.context
  std::vector<std::string> unknown_keys;
};

// `file` stands in messages. context: how many positions the model is to have, 0: all that it was made for.
HubModel parse_hub_config(std::string_view text, const std::string& file, std::int64_t context = 0);

// config.json for a model of ours, under `type` (see above). end_of_text: its id, below 0 where no tokenizer is known.
// kept: the config.json that the model came with, whose ids of special tokens are taken over, or "". Throws UserError
// where the type cannot say what the model is (an OPT with another norm epsilon).
std::string write_hub_config(const ModelConfig& model, const std::string& type, DType dtype, std::int64_t end_of_text,
                             const std::string& kept);

}  // namespace filigree
