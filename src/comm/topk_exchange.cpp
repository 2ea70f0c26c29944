#include "comm/topk_exchange.h"

#include <cmath>

#include "kernels/elementwise/elementwise.h"

namespace filigree {

double topk_density(const TopkSettings& settings, std::int64_t step) {
  const double c = std::pow(settings.density, 1.0 / static_cast<double>(settings.warmup + 1));
  return std::max(std::pow(c, static_cast<double>(step + 1)), settings.density);
}

TopkExchange::TopkExchange(Communicator& communicator, const TopkSettings& settings)
    : GradientExchange(communicator), settings_(settings), sum_(communicator, settings.wire) {}

std::int64_t topk_list_bytes(std::int64_t keep, DType dtype) {
  return keep * 4 + (keep * static_cast<std::int64_t>(size_of(dtype)) + 3) / 4 * 4;
}

void TopkExchange::attach(Device& device, const std::vector<Parameter*>& parameters) {
  parameters_ = parameters;
  residuals_.attach(device, parameters);
  entries_.clear();
  Memory& memory = device.memory();
  std::int64_t lists = 0, staged = 0;
  for (std::size_t index = 0; index < residuals_.size(); ++index) {
    const std::int64_t count = residuals_.parameter(index).count();
    entries_.push_back({.mask = Mask::allocate(device, count), .slot = {}});
    lists += list_bytes(chosen_entries(settings_.density, count));
    if (!sum_.travels_in_place(count)) staged += count;
  }
  sum_.reserve(device, staged);
  sent_ = {};
  gathered_ = {};
  if (lists == 0) return;
  sent_ = memory.tensor(Purpose::gradients, DType::u8, {lists});
  gathered_ = memory.tensor(Purpose::gradients, DType::u8, {lists * communicator_.size()});
}

void TopkExchange::begin_step(Device& /*device*/, const ExchangeStep& step) {
  const auto start = static_cast<std::int64_t>(std::llround(settings_.start * static_cast<double>(step.steps)));
  residuals_.begin_step();
  open_ = 0;
  density_ = step.step < start ? 1.0 : topk_density(settings_, step.step - start);
  form_ = step.step < start ? Form::dense : density_ > settings_.density ? Form::whole : Form::lists;
  sum_.begin();
  buckets_.clear();
  for (std::size_t index = 0; index < entries_.size(); ++index) {
    Entry& entry = entries_[index];
    const std::int64_t count = entry.mask.count;
    entry.keep = chosen_entries(density_, count);
    if (form_ != Form::lists) {
      const bool in_place = sum_.travels_in_place(count);
      entry.slot =
          sum_.announce(in_place ? 0 : count,
                        in_place ? std::vector<Tensor>{residuals_.parameter(index).gradient()} : std::vector<Tensor>{});
      continue;
    }
    if (buckets_.empty() || buckets_.back().bytes >= settings_.wire.bucket_bytes)
      buckets_.push_back({.begin = index,
                          .end = index,
                          .bytes = 0,
                          .first = buckets_.empty() ? 0 : buckets_.back().first + buckets_.back().bytes,
                          .pending = {}});
    Bucket& bucket = buckets_.back();
    entry.first = bucket.bytes;
    bucket.bytes += list_bytes(entry.keep);
    bucket.end = index + 1;
  }
}

// The residual becomes gradient and residual together, the gradient zero, and the largest entries are chosen.
void TopkExchange::choose(Device& device, std::size_t index) {
  const Tensor& gradient = residuals_.parameter(index).gradient();
  const Tensor& residual = residuals_.residual(index);
  add(device, residual.reshaped(gradient.shape), gradient);
  fill(device, gradient, 0.0f);
  const LargestArgs args = {
      .chosen = entries_[index].mask.view(), .scores = residual.as<float>(), .keep = entries_[index].keep};
  select_largest(device, {&args, 1});
}

void TopkExchange::gradient_ready(Device& device, Parameter& parameter) {
  if (parameter.count() == 0) return;
  const std::size_t index = residuals_.ready(parameter);
  const Entry& entry = entries_[index];
  CompactArgs args = {.gradient = parameter.gradient().as<float>(),
                      .residual = residuals_.residual(index).as<float>(),
                      .chosen = entry.mask.view(),
                      .pass_residual = true};
  if (form_ != Form::lists) {
    if (form_ == Form::whole) {
      choose(device, index);
      // By way of scratch memory: from the residual to its places in the gradient.
      args.packed = {device.scratch(Scratch::layer, static_cast<std::size_t>(entry.keep) * sizeof(float)),
                     DType::f32,
                     {entry.keep}};
      compact(device, {&args, 1});
      const ScatterArgs back = {.gradient = args.gradient, .packed = args.packed, .chosen = entry.mask.view()};
      scatter(device, {&back, 1});
    }
    if (!entry.slot.empty()) convert(device, entry.slot, parameter.gradient());
    sum_.ready(device);
    return;
  }
  choose(device, index);
  Bucket& bucket = buckets_[open_];
  auto* const list = static_cast<std::byte*>(sent_.view().data) + bucket.first + entry.first;
  args.packed = {list + entry.keep * 4, settings_.wire.dtype, {entry.keep}};
  compact(device, {&args, 1});
  const IndicesArgs indices = {.indices = reinterpret_cast<std::int32_t*>(list), .chosen = entry.mask.view()};
  list_indices(device, {&indices, 1});
  if (index + 1 < bucket.end) return;
  ++open_;
  send(device, bucket);
}

void TopkExchange::send(Device& device, Bucket& bucket) {
  bucket.pending = communicator_.all_gather(
      device, gathered_.view().slice(bucket.first * communicator_.size(), bucket.bytes * communicator_.size()),
      sent_.view().slice(bucket.first, bucket.bytes));
}

void TopkExchange::add_lists(Device& device, const Bucket& bucket) {
  auto* const lists = static_cast<std::byte*>(gathered_.view().data) + bucket.first * communicator_.size();
  for (int rank = 0; rank < communicator_.size(); ++rank)
    for (std::size_t index = bucket.begin; index < bucket.end; ++index) {
      const Entry& entry = entries_[index];
      auto* const list = lists + rank * bucket.bytes + entry.first;
      add_at(device, residuals_.parameter(index).gradient().as<float>(), reinterpret_cast<const std::int32_t*>(list),
             {list + entry.keep * 4, settings_.wire.dtype, {entry.keep}});
    }
}

void TopkExchange::finish(Device& device) {
  residuals_.finish();
  sum_.finish(device);
  for (std::size_t index = 0; index < entries_.size(); ++index)
    if (form_ != Form::lists && !entries_[index].slot.empty())
      convert(device, residuals_.parameter(index).gradient(), entries_[index].slot);
  for (Bucket& bucket : buckets_) {
    bucket.pending.wait(device);
    add_lists(device, bucket);
  }
}

void TopkExchange::leave_out(Device& device) {
  residuals_.leave_out(device, communicator_);
}

std::vector<std::pair<std::string, double>> TopkExchange::report() const {
  return {{"sent_density", density_}};
}

}  // namespace filigree
