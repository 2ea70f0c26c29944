#include "comm/vigil.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>
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

// What rank 0 of three finds within `patience`, told again and again how far the others are.
std::optional<int> judged(Vigil& vigil, Vigil::Clock::duration patience,
                          const std::function<std::array<Vigil::Report, 2>(std::uint64_t look)>& reports) {
  const auto begin = Vigil::Clock::now();
  for (std::uint64_t look = 1; Vigil::Clock::now() - begin < patience; ++look) {
    const auto [first, second] = reports(look);
    vigil.heard(1, first);
    vigil.heard(2, second);
    if (const auto stuck = vigil.stuck()) return stuck;
    std::this_thread::sleep_for(5ms);
  }
  return std::nullopt;
}

void advance(Vigil& vigil, int calls) {
  vigil.progress();
  for (int i = 0; i < calls; ++i) vigil.entered();
}

TEST(Vigil, WhoeverIsBehindAndDoesNothingIsStuck) {
  for (const int victim : {0, 1, 2}) {
    Vigil vigil(0, 3, 200ms);
    advance(vigil, victim == 0 ? 7 : 9);
    const auto begin = Vigil::Clock::now();
    // The one that is neither first nor last waits for the last: it is not to blame.
    EXPECT_EQ(judged(vigil, 10s,
                     [&](std::uint64_t) {
                       return std::array<Vigil::Report, 2>{
                           {{.calls = victim == 1 ? 7u : 8u, .work = 5}, {.calls = victim == 2 ? 7u : 9u, .work = 3}}};
                     }),
              victim);
    EXPECT_GT(Vigil::Clock::now() - begin, 200ms);
  }
  EXPECT_EQ(Vigil(0, 2, 3s).idleness(1).substr(0, 86),
            "rank 1 hangs: the others have waited for it for 3 s (distributed.timeout), in which it");
}

TEST(Vigil, WhoWorksOrIsNotWaitedForIsNotStuck) {
  using Reports = std::array<Vigil::Report, 2>;
  // A long evaluation on all ranks, or a slow first step: none is further.
  Vigil equal(0, 3, 100ms);
  advance(equal, 4);
  EXPECT_EQ(judged(equal, 400ms, [](std::uint64_t) { return Reports{{{4, 1}, {4, 1}}}; }), std::nullopt);
  // A checkpoint that one of them writes while the others wait.
  Vigil working(0, 3, 100ms);
  advance(working, 4);
  EXPECT_EQ(judged(working, 400ms, [](std::uint64_t look) { return Reports{{{4, 1}, {3, look}}}; }), std::nullopt);
  // Set-up, before the first micro-batch.
  Vigil starting(0, 3, 100ms);
  advance(starting, 4);
  EXPECT_EQ(judged(starting, 400ms, [](std::uint64_t) { return Reports{{{4, 0}, {3, 0}}}; }), std::nullopt);
  // A rank that computes for long, and one that waits for it, both behind a third.
  Vigil chain(0, 3, 100ms);
  advance(chain, 9);
  EXPECT_EQ(judged(chain, 400ms, [](std::uint64_t look) { return Reports{{{8, 1}, {7, look}}}; }), std::nullopt);
  // Others come ahead only now: the time counts from there.
  Vigil late(0, 3, 300ms);
  advance(late, 4);
  EXPECT_EQ(judged(late, 250ms, [](std::uint64_t) { return Reports{{{4, 1}, {4, 1}}}; }), std::nullopt);
  EXPECT_EQ(judged(late, 150ms, [](std::uint64_t) { return Reports{{{5, 1}, {4, 1}}}; }), std::nullopt);
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
