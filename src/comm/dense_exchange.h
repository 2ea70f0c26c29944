// gradients.exchange = "dense": every gradient is added over the ranks, in buckets that follow the backward pass and
// travel beside what is left of it.
//
// On the wire in fp32 large gradients travel in place; small ones, and all of them in bf16, by way of a staging array.
//
// Where the optimizer's state is sharded a rank needs the sums of the part that it updates alone: the gradient is
// reduced and scattered, half of a sum's bytes, and the other half is the values' way back (gather_values).
#pragma once

#include "comm/gradient_exchange.h"

namespace filigree {

class DenseExchange final : public GradientExchange {
 public:
  // wire: fp32 or bf16. A bucket is sent when its parameters have at least `bucket_bytes` on the wire.
  DenseExchange(Communicator& communicator, DType wire, std::int64_t bucket_bytes);

  std::string_view name() const override { return "dense"; }
  void attach(Device& device, const std::vector<Parameter*>& parameters) override;
  void begin_step(Device& device, const ExchangeStep& step) override;
  void gradient_ready(Device& device, Parameter& parameter) override;
  void finish(Device& device) override;
  double sum_of_squares(Device& device) override;

 private:
  // Where a parameter's gradient, or the shared or the common part of it, travels.
  struct Piece {
    Tensor gradient;            // flat
    Tensor staged;              // as long; empty: in place
    std::int64_t begin, count;  // what comes back: all, or of a shared part this rank's own
  };
  struct Passenger {
    Parameter* parameter;
    std::vector<Piece> pieces;
  };
  // Sums of which each rank gets its part.
  struct Shared {
    Tensor part, array;
  };
  struct Bucket {
    std::vector<Passenger> passengers;
    std::vector<Tensor> arrays;  // what is summed
    std::vector<Shared> shared;  // what is summed and shared out
    std::size_t ready = 0;       // passengers that are there
    std::vector<Pending> pending;
  };
  bool in_place(std::int64_t count) const;
  void reserve(Device& device);

  DType wire_;
  std::int64_t bucket_bytes_;
  OwnedTensor staging_;         // of what is summed, of all buckets, in the wire's type
  OwnedTensor shared_staging_;  // of what is summed and shared out
  std::vector<Bucket> buckets_;
  std::size_t open_ = 0;  // the bucket that gradients get ready for
};

}  // namespace filigree
