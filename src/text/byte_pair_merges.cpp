#include "text/byte_pair_merges.h"

#include <algorithm>
#include <array>
#include <bit>
#include <queue>
#include <tuple>
#include <utility>

namespace filigree {
namespace {

// Up to here a scan for the lowest rank costs less than a queue.
constexpr std::size_t kShortWord = 48;  // tokens

}  // namespace

BytePairMerges::BytePairMerges(std::size_t count) {
  resize(std::max(4u, static_cast<unsigned>(std::bit_width(2 * count))));
}

void BytePairMerges::resize(unsigned bits) {
  const std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(std::size_t{1} << bits));
  shift_ = 64 - bits;
  for (const Slot& slot : old)
    if (slot.pair != kEmpty) slots_[slot_of(slot.pair)] = slot;
}

bool BytePairMerges::add(const BytePairMerge& merge) {
  if (2 * (size_ + 1) > slots_.size()) resize(64 - shift_ + 1);
  const std::uint64_t pair = pair_of(merge.left, merge.right);
  Slot& slot = slots_[slot_of(pair)];
  if (slot.pair == pair) return false;
  slot = {pair, merge.rank, merge.result};
  ++size_;
  return true;
}

std::size_t BytePairMerges::apply(std::span<std::int32_t> tokens) const {
  return tokens.size() <= kShortWord ? apply_to_short(tokens) : apply_to_long(tokens);
}

std::size_t BytePairMerges::apply_to_short(std::span<std::int32_t> tokens) const {
  std::size_t count = tokens.size();
  if (count < 2) return count;
  struct Pair {
    std::int32_t rank, result;
  };
  std::array<Pair, kShortWord> pairs;  // pairs[i]: of tokens i and i + 1
  const auto look_up = [&](std::size_t i) {
    const Slot& slot = find(tokens[i], tokens[i + 1]);
    pairs[i] = {slot.rank, slot.result};
  };
  for (std::size_t i = 0; i + 1 < count; ++i) look_up(i);
  for (;;) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < count; ++i)
      if (pairs[i].rank < pairs[best].rank) best = i;
    if (pairs[best].rank == kNone) return count;
    tokens[best] = pairs[best].result;
    --count;
    for (std::size_t i = best + 1; i < count; ++i) tokens[i] = tokens[i + 1];
    for (std::size_t i = best + 1; i + 1 < count; ++i) pairs[i] = pairs[i + 1];
    if (count == 1) return 1;
    if (best > 0) look_up(best - 1);
    if (best + 1 < count) look_up(best);
  }
}

std::size_t BytePairMerges::apply_to_long(std::span<std::int32_t> tokens) const {
  // A token that was merged into the one before is -1; the others are linked.
  const std::size_t size = tokens.size();
  std::vector<std::size_t> next(size), previous(size);
  for (std::size_t i = 0; i < size; ++i) {
    next[i] = i + 1;
    previous[i] = i - 1;  // of the first never read
  }
  struct Candidate {
    std::int32_t rank;
    std::size_t at;
    std::int32_t left, right, result;
    // The queue's top is the largest: the lowest rank, then the leftmost.
    bool operator<(const Candidate& other) const { return std::tie(rank, at) > std::tie(other.rank, other.at); }
  };
  std::priority_queue<Candidate> candidates;
  const auto offer = [&](std::size_t at) {
    const std::int32_t left = tokens[at], right = tokens[next[at]];
    if (const Slot& slot = find(left, right); slot.rank != kNone)
      candidates.push({slot.rank, at, left, right, slot.result});
  };
  for (std::size_t i = 0; i + 1 < size; ++i) offer(i);
  while (!candidates.empty()) {
    const Candidate best = candidates.top();
    candidates.pop();
    const std::size_t right = next[best.at];
    if (tokens[best.at] != best.left || right == size || tokens[right] != best.right) continue;  // out of date
    tokens[best.at] = best.result;
    tokens[right] = -1;
    next[best.at] = next[right];
    if (next[right] < size) {
      previous[next[right]] = best.at;
      offer(best.at);
    }
    if (best.at > 0) offer(previous[best.at]);
  }
  return static_cast<std::size_t>(std::remove(tokens.begin(), tokens.end(), -1) - tokens.begin());
}

}  // namespace filigree
