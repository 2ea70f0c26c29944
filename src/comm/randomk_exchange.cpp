#include "comm/randomk_exchange.h"

#include <cmath>

#include "core/hash.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/random/random_fill.h"

namespace filigree {

RandomkExchange::RandomkExchange(Communicator& communicator, const RandomkSettings& settings)
    : GradientExchange(communicator), settings_(settings), sum_(communicator, settings.wire) {}

void RandomkExchange::attach(Device& device, const std::vector<Parameter*>& parameters) {
  parameters_ = parameters;
  residuals_.attach(device, parameters);
  entries_.clear();
  std::int64_t staged = 0;
  for (std::size_t index = 0; index < residuals_.size(); ++index) {
    const std::int64_t count = residuals_.parameter(index).count();
    const std::int64_t keep = chosen_entries(settings_.density, count);
    entries_.push_back({.mask = Mask::allocate(device, count), .keep = keep, .slot = {}});
    staged += sum_.travels_in_place(count) ? keep : count;
  }
  sum_.reserve(device, staged);
}

void RandomkExchange::begin_step(Device& device, const ExchangeStep& step) {
  dense_ = step.step < std::llround(settings_.start * static_cast<double>(step.steps));
  residuals_.begin_step();
  sum_.begin();
  for (std::size_t index = 0; index < entries_.size(); ++index) {
    Entry& entry = entries_[index];
    const Parameter& parameter = residuals_.parameter(index);
    const std::int64_t count = parameter.count();
    if (dense_) {
      const bool in_place = sum_.travels_in_place(count);
      entry.slot = sum_.announce(in_place ? 0 : count,
                                 in_place ? std::vector<Tensor>{parameter.gradient()} : std::vector<Tensor>{});
      continue;
    }
    entry.slot = sum_.announce(entry.keep, {});
    const Tensor scores{
        device.scratch(Scratch::layer, static_cast<std::size_t>(count) * sizeof(float)), DType::f32, {count}};
    fill_uniform(device, scores,
                 Random(settings_.seed, RandomPurpose::exchange, fnv1a32(parameter.name()),
                        static_cast<std::uint32_t>(step.step)));
    const LargestArgs args = {.chosen = entry.mask.view(), .scores = scores.as<float>(), .keep = entry.keep};
    select_largest(device, {&args, 1});
  }
}

void RandomkExchange::gradient_ready(Device& device, Parameter& parameter) {
  if (parameter.count() == 0) return;
  const std::size_t index = residuals_.ready(parameter);
  const Entry& entry = entries_[index];
  if (!dense_) {
    const CompactArgs args = {.packed = entry.slot,
                              .gradient = parameter.gradient().as<float>(),
                              .residual = residuals_.residual(index).as<float>(),
                              .chosen = entry.mask.view(),
                              .pass_residual = true};
    compact(device, {&args, 1});
  } else if (!entry.slot.empty()) {
    convert(device, entry.slot, parameter.gradient());
  }
  sum_.ready(device);
}

void RandomkExchange::finish(Device& device) {
  residuals_.finish();
  sum_.finish(device);
  std::vector<ScatterArgs> packed;
  for (std::size_t index = 0; index < entries_.size(); ++index) {
    const Entry& entry = entries_[index];
    const Tensor& gradient = residuals_.parameter(index).gradient();
    if (!dense_)
      packed.push_back({.gradient = gradient.as<float>(), .packed = entry.slot, .chosen = entry.mask.view()});
    else if (!entry.slot.empty())
      convert(device, gradient, entry.slot);
  }
  scatter(device, packed);
}

void RandomkExchange::leave_out(Device& device) {
  residuals_.leave_out(device, communicator_);
}

}  // namespace filigree
