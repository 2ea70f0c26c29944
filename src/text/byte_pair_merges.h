// The merges of byte-pair encoding (Sennrich, Haddow and Birch, ACL 2016): of all adjacent pairs of tokens in a word
// that may be merged, the one of the lowest rank is, the leftmost of several; until none is left.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace filigree {

struct BytePairMerge {
  std::int32_t left, right, result;  // tokens
  std::int32_t rank;                 // >= 0
};

class BytePairMerges {
 public:
  BytePairMerges() : BytePairMerges(0) {}
  // Room for about `count` merges.
  explicit BytePairMerges(std::size_t count);

  // False where the pair has a merge already, which stays.
  bool add(const BytePairMerge& merge);
  std::size_t size() const { return size_; }

  // Merges the tokens of a word in place; returns how many are left at the front of `tokens`.
  std::size_t apply(std::span<std::int32_t> tokens) const;

 private:
  static constexpr std::uint64_t kEmpty = std::numeric_limits<std::uint64_t>::max();
  static constexpr std::int32_t kNone = std::numeric_limits<std::int32_t>::max();  // the rank of no merge
  struct Slot {
    std::uint64_t pair = kEmpty;
    std::int32_t rank = kNone;
    std::int32_t result = 0;
  };

  static std::uint64_t pair_of(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
  }
  // Where `pair` is, or where it would be put.
  std::size_t slot_of(std::uint64_t pair) const {
    std::size_t at = (pair * 0x9E3779B97F4A7C15u) >> shift_;
    while (slots_[at].pair != pair && slots_[at].pair != kEmpty) at = (at + 1) & (slots_.size() - 1);
    return at;
  }
  const Slot& find(std::int32_t left, std::int32_t right) const { return slots_[slot_of(pair_of(left, right))]; }

  std::size_t apply_to_short(std::span<std::int32_t> tokens) const;
  std::size_t apply_to_long(std::span<std::int32_t> tokens) const;
  void resize(unsigned bits);

  std::vector<Slot> slots_;  // a power of two, at most half full
  unsigned shift_ = 0;       // 64 less its logarithm
  std::size_t size_ = 0;
};

}  // namespace filigree
