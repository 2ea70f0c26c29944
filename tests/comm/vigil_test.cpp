#include "comm/vigil.h"

#include <gtest/gtest.h>

#include <thread>

#include "comm/agreement.h"

namespace filigree {
namespace {

using namespace std::chrono_literals;

TEST(Vigil, TheFirstWatchesAllAndTheOthersTheFirst) {
  EXPECT_EQ(Vigil(0, 3, 1s).watched(), (std::vector<int>{1, 2}));
  EXPECT_EQ(Vigil(2, 3, 1s).watched(), (std::vector<int>{0}));
}

TEST(Vigil, SilenceIsNoticedAfterTheTimeout) {
  Vigil vigil(0, 3, 200ms);
  const auto begin = Vigil::Clock::now();
  std::optional<int> overdue;
  while (!overdue && Vigil::Clock::now() - begin < 10s) {
    vigil.heard(1);
    overdue = vigil.overdue();
    std::this_thread::sleep_for(5ms);
  }
  EXPECT_EQ(overdue, 2);
  EXPECT_GT(Vigil::Clock::now() - begin, 200ms);
  EXPECT_EQ(vigil.silence(2).substr(0, 61), "rank 2 has not answered for 0.2 s (distributed.timeout): the ");
}

TEST(Vigil, WhoWasStoppedItselfBlamesNobody) {
  Vigil vigil(0, 2, 200ms);
  std::this_thread::sleep_for(300ms);
  EXPECT_EQ(vigil.overdue(), std::nullopt);
}

TEST(Vigil, OneRankSaysIt) {
  Vigil speaker(0, 2, 1s), silent(1, 2, 1s);
  speaker.throw_if_lost();
  speaker.lose("the reason", true);
  speaker.lose("another", false);
  silent.lose("the reason", false);
  EXPECT_THROW(speaker.throw_if_lost(), RankLost);
  EXPECT_THROW(silent.throw_if_lost(), FailedElsewhere);
  speaker.end_unless_noticed();  // it was noticed
}

}  // namespace
}  // namespace filigree
