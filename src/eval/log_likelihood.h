// Log-probabilities of given texts, many at once: what tasks that choose between texts are scored with.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "model/transformer.h"

namespace filigree {

// ids[first ..) as a continuation of ids[.. first); at least one id stands before it.
struct Continuation {
  std::vector<std::int32_t> ids;
  std::int64_t first = 1;
};

struct Likelihood {
  double log = 0.0;    // sum over the continuation's tokens of the logarithm (natural) of their probability
  bool greedy = true;  // each of them was the most probable one
};

// Of each text's continuation, each token given all tokens before it. Where these are more than the model's context and
// the continuation fits into one, the text loses its beginning; of a longer continuation a token sees the nearest
// tokens, at least half a context of them.
//
// Texts of similar length share a forward pass, filled up with tokens that nobody looks at: every pass has the rows
// that the activations were planned for, batch() x sequence(), so that Transformer::plan for these rows serves all of
// them. Equal continuations are computed once and have equal results.
//
// `progress` is called after each pass, in passes; an exception ends the work.
std::vector<Likelihood> log_likelihoods(
    Device& device, Transformer& model, Activations& activations, std::span<const Continuation> texts,
    const std::function<void(std::int64_t done, std::int64_t total)>& progress = {});

// How that is cut up: a window of a text in which the targets ids[first .. end) are scored, given ids[begin .. first).
struct Window {
  std::size_t text = 0;
  std::int64_t begin = 0, first = 0, end = 0;

  std::int64_t length() const { return end - begin - 1; }  // of the model's input
};
// The windows that score a text; more than one only where its continuation is longer than the context.
std::vector<Window> windows_of(const Continuation& text, std::size_t index, std::int64_t context);

// Windows [first, first + count) of a list that is sorted by length, the longest first, as sequences of `sequence`
// tokens.
struct Pass {
  std::size_t first = 0, count = 0;
  std::int64_t sequence = 0;
};
// Passes of `rows` tokens: `sequence` divides them and is the least that holds the windows. rows is a multiple of
// context.
std::vector<Pass> plan_passes(std::span<const Window> sorted, std::int64_t rows, std::int64_t context);

}  // namespace filigree
