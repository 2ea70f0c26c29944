// gradients.exchange = "topk": each rank sends the largest entries of its own gradient, residual included, as indices
// and values, and keeps the rest (error feedback). Every rank gathers all lists and adds them: (P-1) · k · e bytes a
// rank, so that it pays for few ranks or a very small density only. AdamW then sees zeros elsewhere; docs/radius.md
// says why that breaks.
//
// The density falls from 1 to its value over gradients.warmup steps, exponentially, counted by the run's step. While it
// falls, gradients are sent as the same sum in another form where that is fewer bytes: whole, with zeros.
#pragma once

#include "comm/bucketed_sum.h"
#include "comm/exchange_state.h"

namespace filigree {

struct TopkSettings {
  double density = 0.01;
  double start = 0.0;       // fraction of the steps; before it dense
  std::int64_t warmup = 0;  // steps
  WireOptions wire;         // of values; indices are int32
};

// Of the step-th step after the start: max(c^(step + 1), density), c = density^(1 / (warmup + 1)).
double topk_density(const TopkSettings& settings, std::int64_t step);

// Of a list of `keep` entries: indices, then values to a multiple of 4 bytes.
std::int64_t topk_list_bytes(std::int64_t keep, DType dtype);

class TopkExchange final : public GradientExchange {
 public:
  TopkExchange(Communicator& communicator, const TopkSettings& settings);

  std::string_view name() const override { return "topk"; }
  void attach(Device& device, const std::vector<Parameter*>& parameters) override;
  void begin_step(Device& device, const ExchangeStep& step) override;
  void gradient_ready(Device& device, Parameter& parameter) override;
  void finish(Device& device) override;
  void leave_out(Device& device) override;
  void save(ExchangeSink& sink) const override { residuals_.save(sink); }
  void load(Device& device, const ExchangeSource& source) override { residuals_.load(device, source); }
  std::vector<std::pair<std::string, double>> report() const override;

 private:
  enum class Form : std::uint8_t { dense, whole, lists };
  struct Entry {
    Mask mask;               // of its own choice
    std::int64_t keep = 0;   // k of this step
    std::int64_t first = 0;  // bytes of the bucket's list before its own
    Tensor slot;             // staged on the wire, where it travels whole
  };
  // Parameters whose lists travel together.
  struct Bucket {
    std::size_t begin = 0, end = 0;  // entries
    std::int64_t bytes = 0;          // of a rank's list
    std::int64_t first = 0;          // bytes of the lists before
    Pending pending;
  };
  std::int64_t list_bytes(std::int64_t keep) const { return topk_list_bytes(keep, settings_.wire.dtype); }
  void send(Device& device, Bucket& bucket);
  void add_lists(Device& device, const Bucket& bucket);
  void choose(Device& device, std::size_t index);

  TopkSettings settings_;
  BucketedSum sum_;
  Residuals residuals_;
  std::vector<Entry> entries_;  // as residuals_ has them
  std::vector<Bucket> buckets_;
  OwnedTensor sent_, gathered_;  // bytes
  Form form_ = Form::dense;
  double density_ = 1.0;
  std::size_t open_ = 0;  // the bucket that gradients get ready for
};

}  // namespace filigree
