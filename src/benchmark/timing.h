// Timing of alternatives against each other: in turn, so that a machine whose speed drifts slows all of them alike.
#pragma once

#include <functional>
#include <vector>

#include "benchmark/results.h"

namespace filigree {

// Runs each function once as a warm-up, then `repeats` rounds of all of them in turn; milliseconds of each.
std::vector<Measured> time_in_turn(const std::vector<std::function<void()>>& runs, int repeats);

// Median, minimum and maximum. At least one sample.
Measured measured(std::vector<double> samples);

}  // namespace filigree
