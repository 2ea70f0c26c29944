#include "comm/dense_exchange.h"

#include "kernels/elementwise/elementwise.h"

namespace filigree {
namespace {

// A gradient of so many values is worth a message of its own: copying it would cost more.
constexpr std::int64_t kInPlace = std::int64_t{1} << 16;

}  // namespace

DenseExchange::DenseExchange(Communicator& communicator, DType wire, std::int64_t bucket_bytes)
    : GradientExchange(communicator), wire_(wire), bucket_bytes_(bucket_bytes) {}

void DenseExchange::attach(Device& device, const std::vector<Parameter*>& parameters) {
  parameters_ = parameters;
  const auto in_place = [&](const Parameter& parameter) {
    return wire_ == DType::f32 && parameter.count() >= kInPlace;
  };
  std::int64_t staged = 0;
  for (const Parameter* parameter : parameters)
    if (!in_place(*parameter)) staged += parameter->count();
  staging_ = {};
  if (staged > 0) staging_ = device.memory().tensor(Purpose::gradients, wire_, {staged});
  buckets_.clear();
  staged = 0;
  std::int64_t bytes = bucket_bytes_, staged_in_bucket = 0;
  for (Parameter* parameter : parameters) {
    if (parameter->count() == 0) continue;
    if (bytes >= bucket_bytes_) {
      buckets_.emplace_back();
      bytes = staged_in_bucket = 0;
    }
    Bucket& bucket = buckets_.back();
    bytes += parameter->count() * static_cast<std::int64_t>(size_of(wire_));
    if (in_place(*parameter)) {
      bucket.passengers.push_back({parameter, {}});
      bucket.arrays.push_back(parameter->gradient());
      continue;
    }
    bucket.passengers.push_back({parameter, staging_.view().slice(staged, parameter->count())});
    // All that is staged for a bucket lies together and is sent as one array, the bucket's first.
    if (staged_in_bucket == 0) bucket.arrays.insert(bucket.arrays.begin(), Tensor{});
    staged_in_bucket += parameter->count();
    staged += parameter->count();
    bucket.arrays.front() = staging_.view().slice(staged - staged_in_bucket, staged_in_bucket);
  }
}

void DenseExchange::begin_step(Device&, const ExchangeStep&) {
  open_ = 0;
  for (Bucket& bucket : buckets_) bucket.ready = 0;
}

void DenseExchange::gradient_ready(Device& device, Parameter& parameter) {
  if (parameter.count() == 0) return;
  require(open_ < buckets_.size(), "more gradients are ready than there are parameters");
  Bucket& bucket = buckets_[open_];
  const Passenger& passenger = bucket.passengers[bucket.ready];
  require(passenger.parameter == &parameter, parameter.name() + ": its gradient is ready out of turn");
  if (!passenger.staged.empty()) convert(device, passenger.staged, parameter.gradient());
  if (++bucket.ready < bucket.passengers.size()) return;
  ++open_;
  bucket.pending = communicator_.all_reduce(device, bucket.arrays);
}

void DenseExchange::finish(Device& device) {
  require(open_ == buckets_.size(), "a parameter's gradient was never ready");
  for (Bucket& bucket : buckets_) {
    bucket.pending.wait(device);
    for (const Passenger& passenger : bucket.passengers)
      if (!passenger.staged.empty()) convert(device, passenger.parameter->gradient(), passenger.staged);
  }
}

}  // namespace filigree
