// What exchanges that send a part of the gradients keep a parameter: masks, and residuals of what waits.
#pragma once

#include <string>
#include <vector>

#include "comm/gradient_exchange.h"
#include "kernels/selection/selection.h"

namespace filigree {

// A Selection and the memory that it lies in.
struct Mask {
  OwnedTensor bits, before;
  std::int64_t count = 0;

  static Mask allocate(Device& device, std::int64_t count);
  Selection view() const;
};

// k of a tensor: max(floor(density · count), 1).
std::int64_t chosen_entries(double density, std::int64_t count);

// Parameters that have entries, each with a residual: what its rank has not sent yet (error feedback).
class Residuals {
 public:
  // Residuals of parameters whose name and count were there before stay.
  void attach(Device& device, const std::vector<Parameter*>& parameters);
  std::size_t size() const { return entries_.size(); }
  Parameter& parameter(std::size_t index) const { return *entries_[index].parameter; }
  const Tensor& residual(std::size_t index) const { return entries_[index].residual; }

  void begin_step() { next_ = 0; }
  // The entry whose gradient is ready, which must be the next one.
  std::size_t ready(const Parameter& parameter);
  void finish() const { require(next_ == entries_.size(), "a parameter's gradient was never ready"); }
  // After a step that was left out because a number was not finite: residuals that have taken it up are emptied on all
  // ranks, for they would pass it on. Returns whether that was so.
  bool leave_out(Device& device, Communicator& communicator) const;

  void save(ExchangeSink& sink) const;
  void load(Device& device, const ExchangeSource& source) const;

 private:
  struct Entry {
    Parameter* parameter = nullptr;
    std::string name;
    OwnedTensor residual;  // (count) fp32
  };
  std::vector<Entry> entries_;
  std::size_t next_ = 0;
};

}  // namespace filigree
