#include "comm/dense_exchange.h"

#include "kernels/elementwise/elementwise.h"

namespace filigree {
namespace {

// A gradient of so many values is worth a message of its own: copying it would cost more.
constexpr std::int64_t kInPlace = std::int64_t{1} << 16;

}  // namespace

DenseExchange::DenseExchange(Communicator& communicator, DType wire, std::int64_t bucket_bytes)
    : GradientExchange(communicator), wire_(wire), bucket_bytes_(bucket_bytes) {}

bool DenseExchange::in_place(std::int64_t count) const {
  return wire_ == DType::f32 && count >= kInPlace;
}

void DenseExchange::reserve(Device& device) {
  std::int64_t staged = 0, shared = 0;
  for (const Parameter* parameter : parameters_) {
    const StateShard& shard = parameter->shard();
    if (!in_place(shard.rest)) staged += shard.rest;
    if (wire_ != DType::f32) shared += shard.rest_begin;
  }
  staging_ = {};
  shared_staging_ = {};
  Memory& memory = device.memory();
  if (staged > 0) staging_ = memory.tensor(Purpose::gradients, wire_, {staged});
  if (shared > 0) shared_staging_ = memory.tensor(Purpose::gradients, wire_, {shared});
}

void DenseExchange::attach(Device& device, const std::vector<Parameter*>& parameters) {
  parameters_ = parameters;
  reserve(device);
  buckets_.clear();
  std::int64_t staged = 0, shared = 0;
  std::int64_t bytes = bucket_bytes_, staged_in_bucket = 0;
  for (Parameter* parameter : parameters) {
    if (parameter->count() == 0) continue;
    if (bytes >= bucket_bytes_) {
      buckets_.emplace_back();
      bytes = staged_in_bucket = 0;
    }
    Bucket& bucket = buckets_.back();
    bytes += parameter->count() * static_cast<std::int64_t>(size_of(wire_));
    Passenger& passenger = bucket.passengers.emplace_back(Passenger{parameter, {}});
    const Tensor gradient = parameter->gradient().reshaped({parameter->count()});
    const StateShard& shard = parameter->shard();
    if (shard.part > 0) {
      Piece piece{gradient.slice(0, shard.rest_begin), {}, shard.begin, shard.part};
      if (wire_ != DType::f32) piece.staged = shared_staging_.view().slice(shared, shard.rest_begin);
      shared += shard.rest_begin;
      const Tensor& array = piece.staged.empty() ? piece.gradient : piece.staged;
      bucket.shared.push_back({array.slice(shard.begin, shard.part), array});
      passenger.pieces.push_back(piece);
    }
    if (shard.rest == 0) continue;
    Piece piece{gradient.slice(shard.rest_begin, shard.rest), {}, 0, shard.rest};
    if (in_place(shard.rest)) {
      bucket.arrays.push_back(piece.gradient);
      passenger.pieces.push_back(piece);
      continue;
    }
    piece.staged = staging_.view().slice(staged, shard.rest);
    passenger.pieces.push_back(piece);
    // All that is staged for a bucket lies together and is sent as one array, the bucket's first.
    if (staged_in_bucket == 0) bucket.arrays.insert(bucket.arrays.begin(), Tensor{});
    staged_in_bucket += shard.rest;
    staged += shard.rest;
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
  for (const Piece& piece : passenger.pieces)
    if (!piece.staged.empty()) convert(device, piece.staged, piece.gradient);
  if (++bucket.ready < bucket.passengers.size()) return;
  ++open_;
  bucket.pending.clear();
  if (!bucket.arrays.empty()) bucket.pending.push_back(communicator_.all_reduce(device, bucket.arrays));
  for (const Shared& shared : bucket.shared)
    bucket.pending.push_back(communicator_.reduce_scatter(device, shared.part, shared.array));
}

void DenseExchange::finish(Device& device) {
  require(open_ == buckets_.size(), "a parameter's gradient was never ready");
  for (Bucket& bucket : buckets_) {
    for (Pending& pending : bucket.pending) pending.wait(device);
    for (const Passenger& passenger : bucket.passengers)
      for (const Piece& piece : passenger.pieces)
        if (!piece.staged.empty())
          convert(device, piece.gradient.slice(piece.begin, piece.count), piece.staged.slice(piece.begin, piece.count));
  }
}

double DenseExchange::sum_of_squares(Device& device) {
  std::vector<Tensor> own, common;
  for (const Parameter* parameter : parameters_) {
    const StateShard& shard = parameter->shard();
    const Tensor gradient = parameter->gradient().reshaped({parameter->count()});
    if (shard.part > 0) own.push_back(gradient.slice(shard.begin, shard.part));
    common.push_back(gradient.slice(shard.rest_begin, shard.rest));
  }
  const double squares = filigree::sum_of_squares(device, common);
  return own.empty() ? squares : squares + communicator_.sum(filigree::sum_of_squares(device, own));
}

}  // namespace filigree
