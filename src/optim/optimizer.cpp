#include "optim/optimizer.h"

#include <cmath>

#include "kernels/elementwise/elementwise.h"

namespace filigree {

double gradient_norm(Device& device, const std::vector<Parameter*>& parameters) {
  std::vector<Tensor> gradients;
  for (const Parameter* parameter : parameters) gradients.push_back(parameter->gradient());
  return std::sqrt(sum_of_squares(device, gradients));
}

std::vector<ParameterUpdate> adamw_updates(const std::vector<Parameter*>& parameters, const TrainConfig& train,
                                           GroupStep base, GroupStep adapters, double clip) {
  const auto state = [&](GroupStep group) {
    return StepState{.lr = static_cast<float>(group.lr),
                     .clip = static_cast<float>(clip),
                     .bias_correction1 = static_cast<float>(1.0 - std::pow(train.beta1, static_cast<double>(group.t))),
                     .bias_correction2 = static_cast<float>(1.0 - std::pow(train.beta2, static_cast<double>(group.t)))};
  };
  const StepState base_state = state(base), adapter_state = state(adapters);
  const auto flat = [](const Tensor& tensor) { return tensor.reshaped({tensor.count()}); };
  std::vector<ParameterUpdate> updates;
  for (Parameter* parameter : parameters)
    for (const StateRange& range : parameter->kept()) {
      const Tensor values = flat(parameter->values()).slice(range.begin, range.count);
      updates.push_back(
          {.parameter = parameter,
           .begin = range.begin,
           .args = {
               .values = values,
               .master = parameter->has_master() ? parameter->master().as<float>() + range.offset : values.as<float>(),
               .gradient = parameter->gradient().as<float>() + range.begin,
               .m = parameter->m().as<float>() + range.offset,
               .v = parameter->v().as<float>() + range.offset,
               .count = range.count,
               .step = parameter->options().adapter ? adapter_state : base_state,
               .beta1 = static_cast<float>(train.beta1),
               .beta2 = static_cast<float>(train.beta2),
               .epsilon = static_cast<float>(train.eps),
               .decay = parameter->options().decay ? static_cast<float>(train.weight_decay) : 0.0f}});
    }
  return updates;
}

void adamw(Device& device, std::span<const ParameterUpdate> updates) {
  std::vector<AdamWArgs> all;
  for (const ParameterUpdate& update : updates) all.push_back(update.args);
  adamw(device, all);
}

void adamw_step(Device& device, const std::vector<Parameter*>& parameters, const TrainConfig& train, GroupStep base,
                GroupStep adapters, double clip) {
  adamw(device, adamw_updates(parameters, train, base, adapters, clip));
}

}  // namespace filigree
