// Exactly what an exchange puts on the wire: the same counts that the communicator finds at work, from sizes alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/config.h"

namespace filigree {

// One parameter.
struct TensorSize {
  std::string name;
  std::int64_t count = 0;
  std::int64_t shared = 0;  // elements of which each rank keeps a part of the optimizer's state (distributed.zero)
  std::int64_t rows = 0, columns = 0;  // of a matrix that is stored whole; 0 else
};

// Bytes of a rank's arrays in one step, as they are handed to the collectives.
struct StepBytes {
  double summed = 0.0;    // all-reduced
  double gathered = 0.0;  // what one rank gives to an all-gather
  // distributed.zero: arrays of which each rank has a part, reduced and scattered or gathered: half of a sum's way.
  double shared = 0.0;

  double handed_over() const { return summed + gathered + shared; }
};
struct ExchangeBytes {
  StepBytes whole;     // before the start: every gradient
  StepBytes flush;     // radius: each gradients.interval steps, whole gradients and, where they travel apart, residuals
  StepBytes ordinary;  // the other steps
  std::int64_t interval = 1;

  // Mean over steps after the start.
  StepBytes mean() const;
};
ExchangeBytes exchange_bytes(const Config& config, const std::vector<TensorSize>& tensors, std::int64_t ranks);

// What a rank sends of it around a ring of P ranks: 2 (P-1)/P · summed + (P-1) · gathered + (P-1)/P · shared.
double ring_bytes(const StepBytes& bytes, std::int64_t ranks);

}  // namespace filigree
