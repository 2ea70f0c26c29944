#include "comm/bucketed_sum.h"

namespace filigree {

void BucketedSum::reserve(Device& device, std::int64_t elements) {
  if (!staging_.empty() && staging_.view().count() >= elements) return;
  staging_ = {};
  if (elements > 0) staging_ = device.memory().tensor(Purpose::gradients, options_.dtype, {elements});
}

void BucketedSum::begin() {
  used_ = open_ = ready_ = 0;
  staged_ = 0;
}

Tensor BucketedSum::announce(std::int64_t staged, const std::vector<Tensor>& in_place) {
  if (used_ == 0 || buckets_[used_ - 1].bytes >= options_.bucket_bytes) {
    if (++used_ > buckets_.size()) buckets_.emplace_back();
    Bucket& fresh = buckets_[used_ - 1];
    fresh.first = staged_;
    fresh.staged = fresh.bytes = 0;
    fresh.passengers = 0;
    fresh.in_place.clear();
  }
  Bucket& bucket = buckets_[used_ - 1];
  ++bucket.passengers;
  bucket.staged += staged;
  bucket.bytes += staged * static_cast<std::int64_t>(size_of(options_.dtype));
  for (const Tensor& array : in_place) {
    bucket.in_place.push_back(array);
    bucket.bytes += static_cast<std::int64_t>(array.bytes());
  }
  if (staged == 0) return {};
  staged_ += staged;
  return staging_.view().slice(staged_ - staged, staged);
}

void BucketedSum::ready(Device& device) {
  require(open_ < used_, "more gradients are ready than were announced");
  Bucket& bucket = buckets_[open_];
  if (++ready_ < bucket.passengers) return;
  ready_ = 0;
  ++open_;
  send(device, bucket);
}

void BucketedSum::send(Device& device, Bucket& bucket) {
  bucket.arrays.clear();
  if (bucket.staged > 0) bucket.arrays.push_back(staging_.view().slice(bucket.first, bucket.staged));
  bucket.arrays.insert(bucket.arrays.end(), bucket.in_place.begin(), bucket.in_place.end());
  if (!bucket.arrays.empty()) bucket.pending = communicator_.all_reduce(device, bucket.arrays);
}

void BucketedSum::finish(Device& device) {
  require(open_ == used_, "a gradient was announced that was never ready");
  for (std::size_t index = 0; index < used_; ++index) buckets_[index].pending.wait(device);
}

}  // namespace filigree
