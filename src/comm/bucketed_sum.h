// Arrays of a step that are summed over the ranks in buckets, each as soon as all that it holds is there. What travels
// may differ from step to step: whole gradients, packed ones, residuals. Exchanges announce it in begin_step, in the
// order in which gradients get ready.
#pragma once

#include <vector>

#include "comm/communicator.h"

namespace filigree {

struct WireOptions {
  DType dtype = DType::f32;
  std::int64_t bucket_bytes = 25 << 20;
  std::int64_t in_place = 1 << 16;  // fp32 gradients of so many values travel where they lie: copying costs more
};

class BucketedSum {
 public:
  BucketedSum(Communicator& communicator, const WireOptions& options)
      : communicator_(communicator), options_(options) {}

  // Room for the staged elements of any one step.
  void reserve(Device& device, std::int64_t elements);

  // A new step.
  void begin();
  // The next passenger: `staged` elements in the wire's type, whose place is returned, and arrays that travel where
  // they lie. Both may be missing.
  Tensor announce(std::int64_t staged, const std::vector<Tensor>& in_place);
  // All that the next announced passenger sends has been written.
  void ready(Device& device);
  // On return every sum is there (on a GPU in the stream's order).
  void finish(Device& device);

  bool travels_in_place(std::int64_t count) const { return options_.dtype == DType::f32 && count >= options_.in_place; }
  DType dtype() const { return options_.dtype; }

 private:
  struct Bucket {
    std::int64_t first = 0, staged = 0;  // staged elements, which lie together and are sent as one array
    std::int64_t bytes = 0;
    std::size_t passengers = 0;
    std::vector<Tensor> in_place;
    std::vector<Tensor> arrays;  // what is sent
    Pending pending;
  };
  void send(Device& device, Bucket& bucket);

  Communicator& communicator_;
  WireOptions options_;
  OwnedTensor staging_;
  std::vector<Bucket> buckets_;  // those of earlier steps are used again
  std::size_t used_ = 0;         // buckets of this step
  std::int64_t staged_ = 0;
  std::size_t open_ = 0, ready_ = 0;  // the bucket that passengers get ready for, and how many of its own are
};

}  // namespace filigree
