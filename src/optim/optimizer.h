// AdamW over a model's parameters, dense or compressed, and the global gradient norm that clipping needs.
#pragma once

#include <span>
#include <vector>

#include "io/config.h"
#include "sparsity/parameter_update.h"

namespace filigree {

// Euclidean norm over all gradients, compressed ones counted by what they hold. Not finite when a gradient is not.
double gradient_norm(Device& device, const std::vector<Parameter*>& parameters);

// One group's step: t counts from 1; adapters count from their insertion.
struct GroupStep {
  double lr = 0.0;
  std::int64_t t = 1;
};

// The updates of what this rank keeps of each parameter. `clip` multiplies gradients (1, or max_norm / norm). Weight
// decay reaches the parameters that ask for it (ParameterOptions::decay).
std::vector<ParameterUpdate> adamw_updates(const std::vector<Parameter*>& parameters, const TrainConfig& train,
                                           GroupStep base, GroupStep adapters, double clip);
// Makes them.
void adamw(Device& device, std::span<const ParameterUpdate> updates);
// Both.
void adamw_step(Device& device, const std::vector<Parameter*>& parameters, const TrainConfig& train, GroupStep base,
                GroupStep adapters, double clip);

}  // namespace filigree
