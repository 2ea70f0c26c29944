// A pseudo-random order of 0 .. count-1 that needs no memory: where an index goes is computed from the index alone.
#pragma once

#include <cstdint>

#include "core/random.h"

namespace filigree {

// A Feistel network on the smallest power of two that holds `count`, walked along its cycles until the value falls
// below `count` (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002). The round function is Philox, so
// the order depends on the key of `random` alone. On average fewer than two walks of eight rounds: below 1 us an index.
class Permutation {
 public:
  Permutation(std::int64_t count, const Random& random);

  std::int64_t size() const { return count_; }
  // A bijection of [0, size()).
  std::int64_t operator()(std::int64_t index) const;

 private:
  std::uint64_t walk(std::uint64_t value) const;

  std::int64_t count_;
  Random random_;
  int left_bits_, right_bits_;
};

}  // namespace filigree
