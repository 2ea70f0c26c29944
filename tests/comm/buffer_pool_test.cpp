#include "comm/buffer_pool.h"

#include <gtest/gtest.h>

#include <deque>

#include "core/random.h"

namespace filigree {
namespace {

TEST(BufferPool, LendsAgainWhatFits) {
  BufferPool pool;
  BufferPool::Buffer first = pool.borrow(100);
  const std::byte* const place = first.data();
  pool.give_back(std::move(first));
  EXPECT_EQ(pool.borrow(60).data(), place);
  EXPECT_EQ(pool.bytes(), 100u);
}

// Layers and an embedding a hundred times as long, in order and more or less of them at once: as gradients come.
TEST(BufferPool, HoldsLittleMoreThanWasLentAtOneTime) {
  BufferPool pool;
  std::deque<std::pair<BufferPool::Buffer, std::size_t>> lent;  // and how much of it was wanted
  std::size_t now = 0, most = 0;
  const Random random(1, RandomPurpose::test);
  for (std::uint64_t i = 0; i < 3000; ++i) {
    const std::size_t wanted = i % 20 == 19 ? 100000 : 1000 + i % 3;
    lent.emplace_back(pool.borrow(wanted), wanted);
    ASSERT_GE(lent.back().first.size(), wanted);
    now += wanted;
    most = std::max(most, now);
    while (lent.size() > random.below(i, 15)) {
      now -= lent.front().second;
      pool.give_back(std::move(lent.front().first));
      lent.pop_front();
    }
  }
  EXPECT_LE(pool.bytes(), 2 * most);
}

}  // namespace
}  // namespace filigree
