#include "sparsity/plan.h"

#include <algorithm>
#include <chrono>
#include <limits>

namespace filigree {
namespace {

// The fastest of a few runs after one warm-up: start-up must not take long, and noise only ever adds time.
double fastest_ms(const std::function<void()>& run) {
  run();
  double best = std::numeric_limits<double>::infinity();
  double total = 0.0;
  for (int repeat = 0; repeat < 5 && total < 300.0; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
    run();
    const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    best = std::min(best, ms);
    total += ms;
  }
  return best;
}

}  // namespace

Backend PlanTable::choose(const std::string& key, const std::function<void()>& sparse,
                          const std::function<void()>& dense) {
  if (const auto found = entries_.find(key); found != entries_.end()) return found->second.backend;
  PlanEntry entry;
  if (timing_) {
    entry.sparse_ms = fastest_ms(sparse);
    entry.dense_ms = fastest_ms(dense);
    entry.backend = entry.sparse_ms <= entry.dense_ms ? Backend::sparse : Backend::dense;
  }
  entries_.emplace(key, entry);
  return entry.backend;
}

}  // namespace filigree
