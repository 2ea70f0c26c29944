#include "comm/exchange_state.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "kernels/elementwise/elementwise.h"

namespace filigree {

Mask Mask::allocate(Device& device, std::int64_t count) {
  return {.bits = device.memory().tensor(Purpose::metadata, DType::i32, {selection_words(count)}),
          .before = device.memory().tensor(Purpose::metadata, DType::i32, {selection_counts(count)}),
          .count = count};
}

Selection Mask::view() const {
  return {.bits = static_cast<std::uint32_t*>(bits.view().data),
          .before = static_cast<std::int32_t*>(before.view().data),
          .count = count};
}

std::int64_t chosen_entries(double density, std::int64_t count) {
  return std::clamp<std::int64_t>(static_cast<std::int64_t>(density * static_cast<double>(count)), 1, count);
}

void Residuals::attach(Device& device, const std::vector<Parameter*>& parameters) {
  std::unordered_map<std::string, Entry> old;
  for (Entry& entry : entries_) {
    std::string name = entry.name;
    old.emplace(std::move(name), std::move(entry));
  }
  entries_.clear();
  for (Parameter* parameter : parameters) {
    const std::int64_t count = parameter->count();
    if (count == 0) continue;
    Entry entry{.parameter = parameter, .name = parameter->name(), .residual = {}};
    if (const auto found = old.find(entry.name); found != old.end() && found->second.residual.view().count() == count)
      entry.residual = std::move(found->second.residual);
    if (entry.residual.empty()) entry.residual = device.memory().tensor(Purpose::gradients, DType::f32, {count});
    entries_.push_back(std::move(entry));
  }
}

bool Residuals::leave_out(Device& device, Communicator& communicator) const {
  std::vector<Tensor> all;
  for (const Entry& entry : entries_) all.push_back(entry.residual);
  if (std::isfinite(communicator.sum(sum_of_squares(device, all)))) return false;
  for (const Tensor& residual : all) fill(device, residual, 0.0f);
  return true;
}

std::size_t Residuals::ready(const Parameter& parameter) {
  require(next_ < entries_.size() && entries_[next_].parameter == &parameter,
          parameter.name() + ": its gradient is ready out of turn");
  return next_++;
}

void Residuals::save(ExchangeSink& sink) const {
  for (const Entry& entry : entries_) sink.put_per_rank("residual." + entry.name, entry.residual);
}

void Residuals::load(Device& device, const ExchangeSource& source) const {
  for (const Entry& entry : entries_)
    if (source.has("residual." + entry.name)) source.load_per_rank(device, "residual." + entry.name, entry.residual);
}

}  // namespace filigree
