// Who of the ranks still lives. Each sends a word to the first now and then, the first to all; a rank from which no
// word came for the timeout is lost, and so is the run. One rank says it, the others end silently.
#pragma once

#include <chrono>
#include <condition_variable>
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
  const int rank_;
  const std::chrono::duration<double> timeout_;
  const Clock::duration interval_;
  std::vector<int> watched_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Clock::time_point> last_word_;
  Clock::time_point last_look_ = Clock::now();
  bool lost_ = false, said_here_ = false, noticed_ = false;
  std::string why_;
};

}  // namespace filigree
