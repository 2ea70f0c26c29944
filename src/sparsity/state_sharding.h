// ZeRO, stage 1 (Rajbhandari et al., SC 2020): of a matrix' optimizer state (fp32 master, m and v) each rank keeps a
// part. It updates that part of the values and gets the other parts from the other ranks. What is no matrix (biases,
// norms: a thousandth of a model) every rank keeps whole.
#pragma once

#include <cstdint>

#include "core/device.h"
#include "core/tensor.h"

namespace filigree {

// The ranks that share the state. Whoever knows how they talk implements it (comm/rank_sharding.h).
class StateSharding {
 public:
  virtual ~StateSharding() = default;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  // `whole` becomes the parts of all ranks in their order. All ranks call it.
  virtual void gather(Device& device, const Tensor& whole, const Tensor& part) const = 0;
};

// Of a layout that is never filled.
class PlannedSharding final : public StateSharding {
 public:
  explicit PlannedSharding(std::int64_t ranks) : ranks_(static_cast<int>(ranks)) {}
  int rank() const override { return 0; }
  int ranks() const override { return ranks_; }
  void gather(Device&, const Tensor&, const Tensor&) const override { throw Error("planned ranks hold nothing"); }

 private:
  int ranks_;
};

// What a rank keeps of an array: its part, elements [begin, begin + part), and the array's last `rest` elements, which
// do not divide and which every rank keeps. The ranks' parts lie one behind the other from the array's beginning. In
// memory the rest lies behind the part. An array that is not sharded is all rest.
struct StateShard {
  std::int64_t part = 0, begin = 0;
  std::int64_t rest = 0, rest_begin = 0;

  std::int64_t kept() const { return part + rest; }
};

// Parts of whole vectors and cache lines: 64 elements.
inline StateShard state_shard(std::int64_t count, const StateSharding* sharding) {
  constexpr std::int64_t kUnit = 64;
  if (!sharding || sharding->ranks() == 1) return {.rest = count};
  const std::int64_t part = count / (kUnit * sharding->ranks()) * kUnit;
  const std::int64_t shared = part * sharding->ranks();
  return {.part = part, .begin = part * sharding->rank(), .rest = count - shared, .rest_begin = shared};
}

}  // namespace filigree
