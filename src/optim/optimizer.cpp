#include "optim/optimizer.h"

#include <cmath>

#include "kernels/elementwise/elementwise.h"

namespace filigree {

double gradient_norm(Device& device, const std::vector<Parameter*>& parameters) {
  std::vector<Tensor> gradients;
  for (const Parameter* parameter : parameters) gradients.push_back(parameter->gradient());
  return std::sqrt(sum_of_squares(device, gradients));
}

std::vector<AdamWArgs> adamw_updates(const std::vector<Parameter*>& parameters, const TrainConfig& train,
                                     GroupStep base, GroupStep adapters, double clip) {
  const auto state = [&](GroupStep group) {
    return StepState{.lr = static_cast<float>(group.lr),
                     .clip = static_cast<float>(clip),
                     .bias_correction1 = static_cast<float>(1.0 - std::pow(train.beta1, static_cast<double>(group.t))),
                     .bias_correction2 = static_cast<float>(1.0 - std::pow(train.beta2, static_cast<double>(group.t)))};
  };
  const StepState base_state = state(base), adapter_state = state(adapters);
  std::vector<AdamWArgs> updates;
  for (const Parameter* parameter : parameters)
    updates.push_back({.values = parameter->values(),
                       .master = parameter->master().as<float>(),
                       .gradient = parameter->gradient().as<float>(),
                       .m = parameter->m().as<float>(),
                       .v = parameter->v().as<float>(),
                       .count = parameter->count(),
                       .step = parameter->options().adapter ? adapter_state : base_state,
                       .beta1 = static_cast<float>(train.beta1),
                       .beta2 = static_cast<float>(train.beta2),
                       .epsilon = static_cast<float>(train.eps),
                       .decay = parameter->options().decay ? static_cast<float>(train.weight_decay) : 0.0f});
  return updates;
}

void adamw_step(Device& device, const std::vector<Parameter*>& parameters, const TrainConfig& train, GroupStep base,
                GroupStep adapters, double clip) {
  adamw(device, adamw_updates(parameters, train, base, adapters, clip));
}

}  // namespace filigree
