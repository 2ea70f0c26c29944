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

constexpr const char* kAftermath =
    ": the run stops on all ranks. Its last checkpoint is as it was; go on with --resume";

}  // namespace

Vigil::Vigil(int rank, int size, std::chrono::duration<double> timeout)
    : rank_(rank),
      timeout_(timeout),
      interval_(std::chrono::duration_cast<Clock::duration>(std::min<std::chrono::duration<double>>(timeout / 8, 1s))),
      last_word_(static_cast<std::size_t>(size), Clock::now()),
      watches_(static_cast<std::size_t>(size)) {
  if (rank > 0)
    watched_ = {0};
  else
    for (int other = 1; other < size; ++other) watched_.push_back(other);
}

void Vigil::heard(int rank) {
  const std::scoped_lock lock(mutex_);
  last_word_[static_cast<std::size_t>(rank)] = Clock::now();
}

void Vigil::heard(int rank, const Report& report) {
  heard(rank);
  const std::scoped_lock lock(mutex_);
  update(watches_[static_cast<std::size_t>(rank)], report);
}

void Vigil::update(Watch& watch, const Report& report) const {
  if (watch.report == report) return;
  watch = {.report = report, .behind_since = {}};
}

// After a long break between two looks it is this process that was stopped.
bool Vigil::was_stopped(Clock::time_point& last_look, Clock::time_point now) const {
  return now - std::exchange(last_look, now) > timeout_ / 2;
}

std::optional<int> Vigil::overdue() {
  const std::scoped_lock lock(mutex_);
  const auto now = Clock::now();
  if (was_stopped(last_look_, now)) std::fill(last_word_.begin(), last_word_.end(), now);
  // The first rank speaks first where both sides wait for each other.
  const std::chrono::duration<double> limit = timeout_ + (rank_ > 0 ? 2.0 : 0.0) * interval_;
  for (const int other : watched_)
    if (now - last_word_[static_cast<std::size_t>(other)] > limit) return other;
  return std::nullopt;
}

std::optional<int> Vigil::stuck() {
  const std::scoped_lock lock(mutex_);
  const auto now = Clock::now();
  const bool stopped = was_stopped(last_judgement_, now);
  update(watches_[static_cast<std::size_t>(rank_)], own());
  const auto fewer = [](const Watch& a, const Watch& b) { return a.report.calls < b.report.calls; };
  const auto [least, most] = std::minmax_element(watches_.begin(), watches_.end(), fewer);
  std::optional<int> found;
  for (Watch& watch : watches_) {
    // Who is neither first nor last may itself be waiting for the last.
    const bool behind =
        watch.report.calls == least->report.calls && watch.report.calls < most->report.calls && watch.report.work > 0;
    if (!behind)
      watch.behind_since.reset();
    else if (stopped || !watch.behind_since)
      watch.behind_since = now;
    else if (!found && now - *watch.behind_since > timeout_)
      found = static_cast<int>(&watch - watches_.data());
  }
  return found;
}

std::string Vigil::seconds() const {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", timeout_.count());
  return text;
}

std::string Vigil::silence(int rank) const {
  return "rank " + std::to_string(rank) + " has not answered for " + seconds() + " s (distributed.timeout)" +
         kAftermath;
}

std::string Vigil::idleness(int rank) const {
  return "rank " + std::to_string(rank) + " hangs: the others have waited for it for " + seconds() +
         " s (distributed.timeout), in which it has done nothing" + kAftermath;
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
