// Learning rates and phases of a run: pure functions of the configuration and the step.
#pragma once

#include <cstdint>

#include "io/config.h"

namespace filigree {

// Rate of step `step` (0 is the first): linear warm-up from lr / warmup to lr, then cosine or linear decay to
// min_lr · lr at step train.steps, which the last step just does not reach, or constant.
double learning_rate(const TrainConfig& train, std::int64_t step);

// First step of a phase that starts at `fraction` of the steps.
std::int64_t phase_start(const TrainConfig& train, double fraction);

// Adapters have a rate of their own: rewarm · lr at `start`, the step of their insertion, falling linearly towards 0 at
// the end.
double adapter_learning_rate(const Config& config, std::int64_t start, std::int64_t step);

}  // namespace filigree
