// gradients.exchange = "dense": every gradient is added over the ranks, in buckets that follow the backward pass and
// travel beside what is left of it.
//
// On the wire in fp32 large gradients travel in place; small ones, and all of them in bf16, by way of a staging array.
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

 private:
  // Where a parameter's gradient travels.
  struct Passenger {
    Parameter* parameter;
    Tensor staged;  // empty: in place
  };
  struct Bucket {
    std::vector<Passenger> passengers;
    std::vector<Tensor> arrays;  // what is sent
    std::size_t ready = 0;       // passengers that are there
    Pending pending;
  };

  DType wire_;
  std::int64_t bucket_bytes_;
  OwnedTensor staging_;  // of all buckets, in the wire's type
  std::vector<Bucket> buckets_;
  std::size_t open_ = 0;  // the bucket that gradients get ready for
};

}  // namespace filigree
