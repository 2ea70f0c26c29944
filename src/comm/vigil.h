// Who of the ranks still lives. Each sends a word to the first now and then, the first to all; a rank from which no
// word came for the timeout is lost, and so is the run. One rank says it, the others end silently.
//
// A thread of its own carries the words, and would go on doing so where the main thread hangs. So the words say how far
// that one is: how many collectives it has entered, which are the same in the same order on all ranks, and how much it
// has done between them. Where the rank that has entered the fewest does nothing for the timeout while another is
// further, the others wait for it, and it is stuck. It is not stuck
//   - as long as none is further: all of them compute, evaluate, or have a slow first step;
//   - as long as it reports work of its own: an evaluation, a checkpoint that it alone writes;
//   - before it has reported any: in set-up, where one rank prepares text for hours while the others wait.
// The first rank judges, itself included.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace filigree {

// Called from the thread that carries the words and from the one that waits for results.
class Vigil {
 public:
  using Clock = std::chrono::steady_clock;

  Vigil(int rank, int size, std::chrono::duration<double> timeout);

  // How often words are sent.
  Clock::duration interval() const { return interval_; }
  // The ranks that this one sends words to, and whose words it waits for.
  const std::vector<int>& watched() const { return watched_; }

  void heard(int rank);

  // How far a main thread is.
  struct Report {
    std::uint64_t calls = 0;  // collectives entered
    std::uint64_t work = 0;   // done between them
    friend bool operator==(const Report&, const Report&) = default;
  };
  // From the main thread.
  void entered() noexcept { calls_.fetch_add(1, std::memory_order_relaxed); }
  void progress() noexcept { work_.fetch_add(1, std::memory_order_relaxed); }
  Report own() const { return {calls_.load(std::memory_order_relaxed), work_.load(std::memory_order_relaxed)}; }
  void heard(int rank, const Report& report);
  // The rank for which the others have waited in vain for the timeout. Asked all the time, by the first rank.
  std::optional<int> stuck();
  // What to say of it, and whether this rank says it: the first, or of the first the second.
  std::string idleness(int rank) const;
  bool tells_of(int rank) const { return rank_ == (rank == 0 ? 1 : 0); }

  // The first watched rank whose word is overdue, once it is. To be asked all the time: after a long break it is this
  // process that was stopped, and all others get the whole timeout again.
  std::optional<int> overdue();
  // What to say of it.
  std::string silence(int rank) const;

  // The run is lost. `said_here`: this rank shall say why. Only the first call counts.
  void lose(const std::string& why, bool said_here);
  bool lost() const;
  bool says_why() const;
  // Throws RankLost, or FailedElsewhere where another rank says it, once the run is lost.
  void throw_if_lost();
  // The other thread ends by itself.
  void notice();
  // To be called once by the thread that carries the words after the run was lost: where the other one has not noticed
  // for a while (it waits for a GPU that waits for a lost rank) ends the process.
  void end_unless_noticed();

 private:
  struct Watch {
    Report report;
    std::optional<Clock::time_point> behind_since;  // it is behind, and has done nothing since
  };
  void update(Watch& watch, const Report& report) const;
  bool was_stopped(Clock::time_point& last_look, Clock::time_point now) const;
  std::string seconds() const;

  const int rank_;
  const std::chrono::duration<double> timeout_;
  const Clock::duration interval_;
  std::vector<int> watched_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Clock::time_point> last_word_;
  Clock::time_point last_look_ = Clock::now(), last_judgement_ = Clock::now();
  std::vector<Watch> watches_;  // by rank
  std::atomic<std::uint64_t> calls_{0}, work_{0};
  bool lost_ = false, said_here_ = false, noticed_ = false;
  std::string why_;
};

}  // namespace filigree
