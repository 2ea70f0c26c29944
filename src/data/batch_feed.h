// The micro-batches of a run in order, on the device. While one is computed, the next is read and copied.
#pragma once

#include <array>
#include <cstdint>

#include "core/upload.h"
#include "data/loader.h"

namespace filigree {

// Which samples a rank reads: of each batch of `all` samples the `own` that begin at the rank's first one, in
// micro-batches of `sequences`.
struct BatchShare {
  std::int64_t sequences = 0;  // divides own
  std::int64_t first = 0;
  std::int64_t own = 0;
  std::int64_t all = 0;
};

class BatchFeed {
 public:
  // Keeps references to the device and the loader.
  BatchFeed(Device& device, const Loader& loader, const BatchShare& share);
  // All samples from `first` on.
  BatchFeed(Device& device, const Loader& loader, std::int64_t sequences, std::int64_t first)
      : BatchFeed(device, loader, {.sequences = sequences, .first = first, .own = sequences, .all = sequences}) {}

  struct Batch {
    Tensor tokens, targets;  // (B, S) int32
  };
  // The next micro-batch; work called from now on may read it.
  Batch next();
  // All work that reads it has been called: begins with the one behind it.
  void advance();

 private:
  struct Slot {
    Upload tokens, targets;
    Slot(Device& device, Shape shape)
        : tokens(device, Purpose::data, DType::i32, shape), targets(device, Purpose::data, DType::i32, shape) {}
  };
  Slot& slot(std::int64_t index) { return slots_[static_cast<std::size_t>(index % 2)]; }
  void read(std::int64_t index);

  const Loader& loader_;
  BatchShare share_;
  std::int64_t index_ = 0;  // of the next micro-batch
  std::int64_t ready_ = 0;  // micro-batches that have been read
  std::array<Slot, 2> slots_;
};

}  // namespace filigree
