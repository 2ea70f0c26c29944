// Memory that is lent for as long as an exchange is under way, and lent again: beside the arrays of a step there is
// never much more of it than was lent at one time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace filigree {

class BufferPool {
 public:
  using Buffer = std::vector<std::byte>;

  // At least `bytes`. A buffer that is far too long stays where it is: arrays come in any order, and if each buffer
  // served each array, all of them would become as long as the longest.
  Buffer borrow(std::size_t bytes) {
    auto best = idle_.end();
    for (auto each = idle_.begin(); each != idle_.end(); ++each)
      if (each->size() >= bytes && each->size() / 2 <= bytes && (best == idle_.end() || each->size() < best->size()))
        best = each;
    if (best == idle_.end()) {
      held_ += bytes;
      return Buffer(bytes);
    }
    Buffer found = std::move(*best);
    if (best != idle_.end() - 1) *best = std::move(idle_.back());
    idle_.pop_back();
    return found;
  }
  void give_back(Buffer&& buffer) { idle_.push_back(std::move(buffer)); }

  // Lent and idle.
  std::size_t bytes() const { return held_; }

 private:
  std::vector<Buffer> idle_;
  std::size_t held_ = 0;
};

}  // namespace filigree
