#include <algorithm>
#include <array>
#include <bit>
#include <mutex>

#include "core/parallel.h"
#include "kernels/selection/selection.h"

// A radix select: the bits of |x|, read as an integer, order as |x| does. Three passes (11, 10 and 10 bits) count how
// many entries share the bits found so far and have each next digit; a fourth writes the bits. 16 bytes read an entry.

namespace filigree {
namespace {

constexpr std::int64_t kGrain = 64 * kSelectionGroup;
constexpr int kWordsOfGroup = kSelectionGroup / 32;

std::uint32_t key_of(float score) {
  return std::bit_cast<std::uint32_t>(score) & 0x7fffffffu;
}

// The key of the keep-th largest entry, and how many of that key are kept.
struct Threshold {
  std::uint32_t key = 0;
  std::int64_t ties = 0;
};

Threshold find_threshold(const LargestArgs& args) {
  Threshold found{.key = 0, .ties = args.keep};
  int known = 31;  // bits of a key at and above this one are those of the threshold
  for (const int bits : {11, 10, 10}) {
    const int shift = known - bits;
    const std::uint32_t digits = 1u << bits;
    std::array<std::int64_t, 2048> histogram{};
    std::mutex mutex;
    parallel_for(args.chosen.count, kGrain, [&](std::int64_t begin, std::int64_t end) {
      std::array<std::int32_t, 2048> own{};
      for (std::int64_t i = begin; i < end; ++i) {
        const std::uint32_t key = key_of(args.scores[i]);
        if (key >> known == found.key >> known) ++own[key >> shift & (digits - 1)];
      }
      const std::scoped_lock lock(mutex);
      for (std::uint32_t digit = 0; digit < digits; ++digit) histogram[digit] += own[digit];
    });
    std::uint32_t digit = digits - 1;
    for (; digit > 0 && histogram[digit] < found.ties; --digit) found.ties -= histogram[digit];
    found.key |= digit << shift;
    known = shift;
  }
  return found;
}

// Calls body(group) for all groups, on all threads.
template <typename Body>
void for_groups(std::int64_t count, const Body& body) {
  parallel_for(selection_groups(count), 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t group = begin; group < end; ++group) body(group);
  });
}

// From how many each group has to how many the groups before it have, and behind them the sum.
void sum_before(std::int32_t* counts, std::int64_t groups) {
  std::int32_t sum = 0;
  for (std::int64_t group = 0; group <= groups; ++group) {
    const std::int32_t own = group < groups ? counts[group] : 0;
    counts[group] = sum;
    sum += own;
  }
}

void write_largest(std::uint32_t* bits, const LargestArgs& args, std::int32_t* ties) {
  const Threshold threshold = find_threshold(args);
  const std::int64_t count = args.chosen.count;
  for_groups(count, [&](std::int64_t group) {
    const std::int64_t begin = group * kSelectionGroup, end = std::min(count, begin + kSelectionGroup);
    std::int32_t equal = 0;
    for (std::int64_t i = begin; i < end; ++i) equal += key_of(args.scores[i]) == threshold.key;
    ties[group] = equal;
  });
  sum_before(ties, selection_groups(count));
  for_groups(count, [&](std::int64_t group) {
    std::int64_t left = threshold.ties - ties[group];
    for (int word = 0; word < kWordsOfGroup; ++word) {
      const std::int64_t begin = group * kSelectionGroup + word * 32, end = std::min(count, begin + 32);
      std::uint32_t chosen = 0;
      for (std::int64_t i = begin; i < end; ++i) {
        const std::uint32_t key = key_of(args.scores[i]);
        const bool kept = key > threshold.key || (key == threshold.key && left-- > 0);
        chosen |= std::uint32_t{kept} << (i - begin);
      }
      bits[group * kWordsOfGroup + word] = chosen;
    }
  });
}

// The last set bit before entry `first`, not more than `radius` entries away; else -1. And the next from `first` on.
std::int64_t centre_before(const std::uint32_t* centres, std::int64_t first, std::int64_t radius) {
  for (std::int64_t word = first / 32 - 1; word >= 0 && (word + 1) * 32 + radius > first; --word)
    if (centres[word]) return word * 32 + 31 - std::countl_zero(centres[word]);
  return -1;
}
std::int64_t centre_from(const std::uint32_t* centres, std::int64_t first, std::int64_t radius, std::int64_t words) {
  for (std::int64_t word = first / 32; word < words && word * 32 <= first - 1 + radius; ++word)
    if (centres[word]) return word * 32 + std::countr_zero(centres[word]);
  return -1;
}

// One word of the widened bits, entries [32 word, 32 word + 32).
std::uint32_t widened(const std::uint32_t* centres, std::int64_t word, std::int64_t radius, std::int64_t count) {
  const std::int64_t begin = word * 32, end = std::min(count, begin + 32);
  if (begin >= end) return 0;
  const auto set = [&](std::int64_t from, std::int64_t to) {  // entries [from, to), clipped to this word
    from = std::max(from, begin), to = std::min(to, end);
    if (from >= to) return std::uint32_t{0};
    const std::uint32_t ones = to - from == 32 ? ~0u : (1u << (to - from)) - 1u;
    return ones << (from - begin);
  };
  std::uint32_t bits = 0;
  if (const std::int64_t centre = centre_before(centres, begin, radius); centre >= 0)
    bits |= set(begin, centre + radius + 1);
  if (const std::int64_t centre = centre_from(centres, begin + 32, radius, selection_words(count)); centre >= 0)
    bits |= set(centre - radius, end);
  for (std::uint32_t rest = centres[word]; rest; rest &= rest - 1) {
    const std::int64_t centre = begin + std::countr_zero(rest);
    bits |= set(centre - radius, centre + radius + 1);
  }
  return bits;
}

void select(Device& device, const LargestArgs& args) {
  const std::int64_t groups = selection_groups(args.chosen.count), words = selection_words(args.chosen.count);
  const bool widens = args.radius > 0;
  auto* ties = static_cast<std::int32_t*>(
      device.scratch(Scratch::kernel, static_cast<std::size_t>(selection_counts(args.chosen.count) + words) * 4));
  std::uint32_t* bits = args.chosen.bits;
  auto* centres = reinterpret_cast<std::uint32_t*>(ties + groups + 1);
  write_largest(widens ? centres : bits, args, ties);
  for_groups(args.chosen.count, [&](std::int64_t group) {
    std::int32_t chosen = 0;
    for (std::int64_t word = group * kWordsOfGroup; word < (group + 1) * kWordsOfGroup; ++word) {
      if (widens) bits[word] = widened(centres, word, args.radius, args.chosen.count);
      chosen += std::popcount(bits[word]);
    }
    args.chosen.before[group] = chosen;
  });
  sum_before(args.chosen.before, groups);
}

}  // namespace

void select_largest(Device& device, std::span<const LargestArgs> arrays) {
  for (const LargestArgs& args : arrays) {
    require(args.keep >= 1 && args.keep <= args.chosen.count, "select_largest: from 1 to all entries can be kept");
    require(args.radius >= 0 && args.chosen.count < (std::int64_t{1} << 31), "select_largest: radius or count");
  }
  if constexpr (kBuiltWithCuda)
    if (device.is_cuda()) return cuda::select_largest(device, arrays);
  for (const LargestArgs& args : arrays) select(device, args);
}

}  // namespace filigree
