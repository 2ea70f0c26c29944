// gradients.exchange = "radius": Range-based gradient sparsity (Zheng and Zhang, MLSys 2025). Each rank sends the
// entries that were large in AdamW's direction when all of it was last known, and keeps the others for the next such
// step.
//
//   t mod interval = 0  flush: everything is added over the ranks, waiting gradients included; AdamW; then each tensor
//                       chooses anew, the same entries on every rank, for all have the same numbers
//   other steps         chosen entries are packed and added over the ranks; what is not chosen waits in the residual
//
// k = max(floor(density · count), 1) entries a tensor are chosen, with ties by index; biases are always sent whole.
// docs/radius.md says what the two modes are and what the switches of the improved one do.
//
// After finish() a gradient that was packed lies packed: parameter.gradient() is not its sum, update() knows.
#pragma once

#include <unordered_map>

#include "comm/bucketed_sum.h"
#include "comm/exchange_state.h"
#include "comm/gradient_exchange.h"
#include "kernels/selection/selected_adamw.h"
#include "kernels/selection/selection.h"

namespace filigree {

enum class Flush : std::uint8_t { sum, split, spread, frozen_v };
enum class Score : std::uint8_t { direction, gradient, momentum };

struct RadiusSettings {
  double density = 0.4;
  std::int64_t interval = 200;
  double start = 0.2;  // fraction of the steps; before it dense
  std::int64_t range = 0;
  Flush flush = Flush::sum;
  bool fresh_clip = false;  // clipping sees waiting gradients apart; they are limited to interval · clip_norm
  double clip_norm = 1.0;   // train.clip
  Score score = Score::direction;
  bool stagger = false;
  bool frozen = false;
  bool measure = true;
  WireOptions wire;
};
// What the keys of [gradients] mean: the mode's defaults where a switch says "auto".
RadiusSettings radius_settings(const Config& config);

// Whether a parameter is always sent whole.
bool is_bias(std::string_view name);
// Waiting gradients travel by themselves where something treats them otherwise than the fresh ones.
bool radius_flushes_apart(const RadiusSettings& settings);

class RadiusExchange final : public GradientExchange {
 public:
  RadiusExchange(Communicator& communicator, const RadiusSettings& settings);

  std::string_view name() const override { return "radius"; }
  void attach(Device& device, const std::vector<Parameter*>& parameters) override;
  void begin_step(Device& device, const ExchangeStep& step) override;
  void gradient_ready(Device& device, Parameter& parameter) override;
  void finish(Device& device) override;
  double sum_of_squares(Device& device) override;
  void update(Device& device, std::span<const ParameterUpdate> updates) override;
  void leave_out(Device& device) override;
  void save(ExchangeSink& sink) const override;
  void load(Device& device, const ExchangeSource& source) override;
  std::vector<std::pair<std::string, double>> report() const override { return report_; }

 private:
  enum class Stage : std::uint8_t { whole, flush, packed };
  struct Entry {
    Parameter* parameter = nullptr;
    std::string name;
    std::int64_t count = 0;
    std::int64_t keep = 0;    // k
    std::int64_t sent = 0;    // chosen entries: k, or more with a range
    std::int64_t offset = 0;  // its flushes are at steps t with t mod interval = offset
    bool bias = false;
    bool exchanging = false;  // the mask is in use; before, it is only measured
    bool waiting = false;     // the residual holds gradients
    bool spreading = false;   // the last flush is still being added
    OwnedTensor residual;     // (count) fp32
    OwnedTensor spread;       // (count) fp32, flush spread only
    Mask mask, trial;
    bool chosen = false;  // the mask holds a choice

    Stage stage = Stage::whole;  // of this step
    Tensor slot;                 // staged on the wire
  };

  bool flushes_apart() const { return radius_flushes_apart(settings_); }
  bool is_flush(const Entry& entry) const;
  std::int64_t steps_since_flush(const Entry& entry) const;
  void allocate(Device& device, Entry& entry) const;
  void check_masks(Device& device);
  void begin_entry(Entry& entry);
  SelectedAdamWArgs update_of(Device& device, Entry& entry, const AdamWArgs& adamw);
  bool is_measured(const Entry& entry) const;
  const float* scores(const Entry& entry) const;
  void choose(Device& device);
  void report_measures(const std::vector<const Entry*>& entries, const std::vector<SelectionMeasure>& measures,
                       bool ages);

  RadiusSettings settings_;
  BucketedSum sum_;
  std::vector<Entry> entries_;  // of parameters that are not empty, in their order
  std::unordered_map<const Parameter*, std::size_t> index_;
  std::int64_t step_ = 0, start_ = 0;
  std::size_t next_ = 0;  // the entry whose gradient is due
  bool masks_changed_ = false;
  double flush_clip_ = 1.0;  // factor on waiting gradients, fresh_clip only
  std::vector<std::pair<std::string, double>> report_;
};

}  // namespace filigree
