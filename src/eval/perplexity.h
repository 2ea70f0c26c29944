// Perplexity of a model on held-out tokens.
#pragma once

#include <cstdint>
#include <functional>

#include "data/loader.h"
#include "model/transformer.h"

namespace filigree {

struct PerplexityOptions {
  std::int64_t batch = 1;        // sequences at once; activations must have room for batch x context
  std::int64_t max_tokens = 0;   // stop after about so many targets; 0: all
  double bytes_per_token = 0.0;  // of the text behind the tokens; 0: unknown
  // Of several ranks' work this one's part: every `parts`-th batch, from batch `part` on. `sum` adds a number over
  // them.
  std::int64_t part = 0;
  std::int64_t parts = 1;
  std::function<double(double)> sum = {};
  // Called after each batch, in targets; an exception ends the evaluation.
  std::function<void(std::int64_t done, std::int64_t total)> progress = {};
};

struct Perplexity {
  double loss = 0.0;           // mean negative log-likelihood of a target, in nats
  double perplexity = 0.0;     // exp(loss)
  double bits_per_byte = 0.0;  // loss / ln 2 / bytes_per_token: comparable across tokenizers; NaN when unknown
  std::int64_t targets = 0;
};

// Walks the data once, in order, in windows of the model's context; every token but the first is a target once. Exact
// and bitwise reproducible for a given batch and context. Allocates one batch of tokens and one of targets.
Perplexity perplexity(Device& device, Transformer& model, Activations& activations, const DatasetView& data,
                      const PerplexityOptions& options);

}  // namespace filigree
