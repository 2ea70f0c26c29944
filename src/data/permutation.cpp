#include "data/permutation.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "core/error.h"

namespace filigree {
namespace {

// Four rounds make a pseudo-random permutation where halves are wide (Luby and Rackoff); eight, because halves of a few
// bits mix less. Even, so that halves of different width end where they began.
constexpr int kRounds = 8;

}  // namespace

Permutation::Permutation(std::int64_t count, const Random& random) : count_(count), random_(random) {
  require(count > 0, "a permutation of nothing");
  const int bits = std::max(2, static_cast<int>(std::bit_width(static_cast<std::uint64_t>(count - 1))));
  left_bits_ = bits / 2;
  right_bits_ = bits - left_bits_;
}

std::uint64_t Permutation::walk(std::uint64_t value) const {
  int left_bits = left_bits_, right_bits = right_bits_;
  std::uint64_t left = value >> right_bits, right = value & ((std::uint64_t{1} << right_bits) - 1);
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    const std::uint64_t mask = (std::uint64_t{1} << left_bits) - 1;
    const std::uint64_t mixed = left ^ (random_.u64(round << 32 | right) & mask);
    left = right;
    right = mixed;
    std::swap(left_bits, right_bits);
  }
  return left << right_bits | right;
}

std::int64_t Permutation::operator()(std::int64_t index) const {
  require(index >= 0 && index < count_, "index outside the permutation");
  auto value = static_cast<std::uint64_t>(index);
  do {
    value = walk(value);
  } while (value >= static_cast<std::uint64_t>(count_));
  return static_cast<std::int64_t>(value);
}

}  // namespace filigree
