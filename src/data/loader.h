// Batches of next-token prediction. The data is cut into sequences at stride `context`: sequence s reads tokens
// [s·context, s·context + context) and predicts each one's successor. Letters: B sequences, S = context.
//
// Shuffled: sample i of a run is sequence order(seed, i / sequences())[i mod sequences()], a pure function of (seed,
// i). So a loader has no state: whoever trains keeps one number, the next sample, whatever the rank count; rank r of P
// takes samples first + r·B/P ... of each batch.
//
// Every token but the first is a target exactly once an epoch. When the data does not divide, the last sequence is
// moved back to end with the data, and its targets that the sequence before has already are -1: ignored by the loss.
#pragma once

#include <cstdint>

#include "data/dataset.h"

namespace filigree {

enum class SampleOrder : std::uint8_t { shuffled, sequential };

class Loader {
 public:
  // Keeps a reference to `data`. Shuffled order needs context + 1 tokens and throws UserError naming what would do;
  // sequential order (validation) needs two: a shorter sequence is padded with id 0 under targets of -1.
  Loader(const DatasetView& data, std::int64_t context, SampleOrder order, std::uint64_t seed = 0);

  std::int64_t context() const { return context_; }
  // Sequences an epoch.
  std::int64_t sequences() const { return sequences_; }
  // Targets an epoch: tokens - 1.
  std::int64_t targets() const { return data_->tokens() - 1; }

  // How many targets of samples [first, first + count) are not ignored.
  std::int64_t valid_targets(std::int64_t first, std::int64_t count) const;
  // Fills samples [first, first + count); returns how many targets are not ignored. Shuffled samples go on from epoch
  // to epoch without end. Sequential samples past the last sequence are padding: batches keep their shape to the end.
  std::int64_t batch(std::int64_t first, std::int64_t count,
                     std::int32_t* tokens,          // (count, S)
                     std::int32_t* targets) const;  // (count, S)

 private:
  // Calls body(i, sequence) for each of these samples.
  template <typename Body>
  void each_sequence(std::int64_t first, std::int64_t count, const Body& body) const;
  std::int64_t valid_targets_of(std::int64_t sequence) const;
  std::int64_t fill(std::int64_t sequence, std::int32_t* tokens, std::int32_t* targets) const;

  const DatasetView* data_;
  std::int64_t context_;
  std::int64_t sequences_;
  SampleOrder order_;
  std::uint64_t seed_;
};

}  // namespace filigree
