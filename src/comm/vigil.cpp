#include "comm/vigil.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "comm/agreement.h"

namespace filigree {
namespace {

using namespace std::chrono_literals;

// A process whose GPU hangs cannot end by itself: it gets this long to notice.
constexpr auto kGrace = 5s;

}  // namespace

Vigil::Vigil(int rank, int size, std::chrono::duration<double> timeout)
    : rank_(rank),
      timeout_(timeout),
      interval_(std::chrono::duration_cast<Clock::duration>(std::min<std::chrono::duration<double>>(timeout / 8, 1s))),
      last_word_(static_cast<std::size_t>(size), Clock::now()) {
  if (rank > 0)
    watched_ = {0};
  else
    for (int other = 1; other < size; ++other) watched_.push_back(other);
}

void Vigil::heard(int rank) {
  const std::scoped_lock lock(mutex_);
  last_word_[static_cast<std::size_t>(rank)] = Clock::now();
}

std::optional<int> Vigil::overdue() {
  const std::scoped_lock lock(mutex_);
  const auto now = Clock::now();
  if (now - std::exchange(last_look_, now) > timeout_ / 2) std::fill(last_word_.begin(), last_word_.end(), now);
  // The first rank speaks first where both sides wait for each other.
  const std::chrono::duration<double> limit = timeout_ + (rank_ > 0 ? 2.0 : 0.0) * interval_;
  for (const int other : watched_)
    if (now - last_word_[static_cast<std::size_t>(other)] > limit) return other;
  return std::nullopt;
}

std::string Vigil::silence(int rank) const {
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.3g", timeout_.count());
  return "rank " + std::to_string(rank) + " has not answered for " + seconds +
         " s (distributed.timeout): the run stops on all ranks. Its last checkpoint is as it was; go on with --resume";
}

void Vigil::lose(const std::string& why, bool said_here) {
  const std::scoped_lock lock(mutex_);
  if (lost_) return;
  lost_ = true;
  said_here_ = said_here;
  why_ = why;
  changed_.notify_all();
}

bool Vigil::lost() const {
  const std::scoped_lock lock(mutex_);
  return lost_;
}

bool Vigil::says_why() const {
  const std::scoped_lock lock(mutex_);
  return said_here_;
}

void Vigil::throw_if_lost() {
  const std::scoped_lock lock(mutex_);
  if (!lost_) return;
  noticed_ = true;
  changed_.notify_all();
  if (said_here_) throw RankLost(why_);
  throw FailedElsewhere(1, why_);
}

void Vigil::notice() {
  const std::scoped_lock lock(mutex_);
  noticed_ = true;
  changed_.notify_all();
}

void Vigil::end_unless_noticed() {
  std::unique_lock lock(mutex_);
  if (changed_.wait_for(lock, kGrace, [&] { return noticed_; })) return;
  if (said_here_) std::fprintf(stderr, "filigree: %s\n", why_.c_str());
  std::_Exit(1);
}

}  // namespace filigree
