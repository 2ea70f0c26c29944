// Selections that own their arrays, and the plain way to choose.
#pragma once

#include <bit>
#include <numeric>
#include <set>

#include "kernels/kernel_test.h"
#include "kernels/selection/selection.h"

namespace filigree::testing {

struct OwnedSelection {
  std::vector<std::uint32_t> bits;
  std::vector<std::int32_t> before;
  Selection view;

  explicit OwnedSelection(std::int64_t count)
      : bits(static_cast<std::size_t>(selection_words(count)), 0xdeadbeefu),
        before(static_cast<std::size_t>(selection_counts(count)), -1),
        view{.bits = bits.data(), .before = before.data(), .count = count} {}
  // Each entry chosen with the same probability.
  static OwnedSelection random(std::int64_t count, float density, std::uint32_t stream) {
    std::set<std::int64_t> entries;
    const Random random(42, RandomPurpose::test, stream);
    for (std::int64_t i = 0; i < count; ++i)
      if (random.uniform(static_cast<std::uint64_t>(i)) < density) entries.insert(i);
    return of(count, entries);
  }
  static OwnedSelection of(std::int64_t count, const std::set<std::int64_t>& entries) {
    OwnedSelection made(count);
    std::fill(made.bits.begin(), made.bits.end(), 0u);
    std::fill(made.before.begin(), made.before.end(), 0);
    for (const std::int64_t i : entries) {
      made.bits[static_cast<std::size_t>(i / 32)] |= 1u << (i % 32);
      for (std::size_t group = static_cast<std::size_t>(i / kSelectionGroup) + 1; group < made.before.size(); ++group)
        ++made.before[group];
    }
    return made;
  }
  OwnedSelection(OwnedSelection&&) = default;

  std::set<std::int64_t> entries() const {
    std::set<std::int64_t> chosen;
    for (std::size_t word = 0; word < bits.size(); ++word)
      for (std::uint32_t rest = bits[word]; rest; rest &= rest - 1)
        chosen.insert(static_cast<std::int64_t>(word) * 32 + std::countr_zero(rest));
    return chosen;
  }
};

inline std::set<std::int64_t> largest_by_sorting(const std::vector<float>& scores, std::int64_t keep,
                                                 std::int64_t radius) {
  std::vector<std::int64_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return std::abs(scores[static_cast<std::size_t>(a)]) > std::abs(scores[static_cast<std::size_t>(b)]);
  });
  std::set<std::int64_t> chosen;
  const auto count = static_cast<std::int64_t>(scores.size());
  for (std::int64_t rank = 0; rank < keep; ++rank) {
    const std::int64_t centre = order[static_cast<std::size_t>(rank)];
    for (std::int64_t i = std::max<std::int64_t>(0, centre - radius); i <= std::min(count - 1, centre + radius); ++i)
      chosen.insert(i);
  }
  return chosen;
}

// Scores of all sizes, with signs; `distinct` values, 0: all different.
inline std::vector<float> test_scores(std::int64_t count, std::uint32_t distinct, std::uint32_t stream) {
  const Random random(42, RandomPurpose::test, stream);
  std::vector<float> scores;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto index = static_cast<std::uint64_t>(i);
    float score = std::exp(4.0f * random.normal(index)) * (random.words(index)[3] % 2 ? 1.0f : -1.0f);
    if (distinct > 0) score = static_cast<float>(random.below(index, distinct)) * (i % 2 ? 1.0f : -1.0f);
    scores.push_back(score);
  }
  return scores;
}

}  // namespace filigree::testing
