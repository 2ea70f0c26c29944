// gradients.exchange = "randomk": at each step the same random entries on every rank, k of each tensor, with what had
// to wait (error feedback). No indices travel, for the ranks share the seed: the cheap control beside the exchanges
// that choose.
#pragma once

#include "comm/bucketed_sum.h"
#include "comm/exchange_state.h"

namespace filigree {

struct RandomkSettings {
  double density = 0.4;
  double start = 0.0;  // fraction of the steps; before it dense
  std::uint64_t seed = 1;
  WireOptions wire;
};

class RandomkExchange final : public GradientExchange {
 public:
  RandomkExchange(Communicator& communicator, const RandomkSettings& settings);

  std::string_view name() const override { return "randomk"; }
  void attach(Device& device, const std::vector<Parameter*>& parameters) override;
  void begin_step(Device& device, const ExchangeStep& step) override;
  void gradient_ready(Device& device, Parameter& parameter) override;
  void finish(Device& device) override;
  void leave_out(Device& device) override;
  void save(ExchangeSink& sink) const override { residuals_.save(sink); }
  void load(Device& device, const ExchangeSource& source) override { residuals_.load(device, source); }

 private:
  struct Entry {
    Mask mask;  // of the step's choice
    std::int64_t keep = 0;
    Tensor slot;
  };

  RandomkSettings settings_;
  BucketedSum sum_;
  Residuals residuals_;
  std::vector<Entry> entries_;  // as residuals_ has them
  bool dense_ = true;           // this step
};

}  // namespace filigree
