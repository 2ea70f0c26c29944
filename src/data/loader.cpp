#include "data/loader.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>

#include "core/error.h"
#include "data/permutation.h"

namespace filigree {

Loader::Loader(const DatasetView& data, std::int64_t context, SampleOrder order, std::uint64_t seed)
    : data_(&data), context_(context), order_(order), seed_(seed) {
  require(context > 0, "the context must be positive");
  const std::int64_t needed = order == SampleOrder::shuffled ? context + 1 : 2;
  if (data.tokens() < needed)
    throw UserError(
        data.path().string() + ": the data has " + std::to_string(data.tokens()) + " tokens, but a context of " +
        std::to_string(context) + " needs at least " + std::to_string(needed) +
        (data.tokens() < 2 ? ": use more text"
                           : ": use more text, or a context of at most " + std::to_string(data.tokens() - 1)));
  sequences_ = (targets() + context - 1) / context;
}

template <typename Body>
void Loader::each_sequence(std::int64_t first, std::int64_t count, const Body& body) const {
  require(first >= 0 && count >= 0, "negative sample");
  std::optional<Permutation> order;
  std::int64_t epoch_of_order = -1;
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t sequence = first + i;
    if (order_ == SampleOrder::shuffled) {
      const std::int64_t epoch = sequence / sequences_;
      require(epoch <= std::numeric_limits<std::uint32_t>::max(), "more than 2^32 epochs");
      if (epoch != epoch_of_order)
        order.emplace(sequences_, Random(seed_, RandomPurpose::shuffle, 0, static_cast<std::uint32_t>(epoch)));
      epoch_of_order = epoch;
      sequence = (*order)(sequence % sequences_);
    }
    body(i, sequence);
  }
}

std::int64_t Loader::valid_targets(std::int64_t first, std::int64_t count) const {
  std::int64_t valid = 0;
  each_sequence(first, count, [&](std::int64_t, std::int64_t sequence) { valid += valid_targets_of(sequence); });
  return valid;
}

std::int64_t Loader::batch(std::int64_t first, std::int64_t count, std::int32_t* tokens, std::int32_t* targets) const {
  std::int64_t valid = 0;
  each_sequence(first, count, [&](std::int64_t i, std::int64_t sequence) {
    valid += fill(sequence, tokens + i * context_, targets + i * context_);
  });
  return valid;
}

// Target t is token t + 1: those of a sequence are the ones from its place on, to the end of the data.
std::int64_t Loader::valid_targets_of(std::int64_t sequence) const {
  return std::clamp<std::int64_t>(targets() - sequence * context_, 0, context_);
}

std::int64_t Loader::fill(std::int64_t sequence, std::int32_t* tokens, std::int32_t* targets) const {
  std::fill(targets, targets + context_, -1);
  if (sequence >= sequences_) {
    std::fill(tokens, tokens + context_, 0);
    return 0;
  }
  // The first new target is token `wanted` + 1; the last sequence starts earlier where there are tokens before it.
  const std::int64_t wanted = sequence * context_;
  const std::int64_t begin = std::max<std::int64_t>(0, std::min(wanted, data_->tokens() - 1 - context_));
  const std::int64_t length = std::min(context_, data_->tokens() - 1 - begin);
  const std::int64_t repeated = wanted - begin;
  data_->read(begin, {tokens, static_cast<std::size_t>(length)});
  std::fill(tokens + length, tokens + context_, 0);
  data_->read(wanted + 1, {targets + repeated, static_cast<std::size_t>(length - repeated)});
  return length - repeated;
}

}  // namespace filigree
