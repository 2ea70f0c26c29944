#include "benchmark/timing.h"

#include <algorithm>
#include <chrono>

#include "core/interrupt.h"

namespace filigree {

Measured measured(std::vector<double> samples) {
  require(!samples.empty(), "no sample");
  std::sort(samples.begin(), samples.end());
  const std::size_t middle = samples.size() / 2;
  const double median = samples.size() % 2 == 1 ? samples[middle] : 0.5 * (samples[middle - 1] + samples[middle]);
  return {median, samples.front(), samples.back()};
}

std::vector<Measured> time_in_turn(const std::vector<std::function<void()>>& runs, int repeats) {
  for (const auto& run : runs) run();
  std::vector<std::vector<double>> samples(runs.size());
  for (int repeat = 0; repeat < repeats; ++repeat)
    for (std::size_t i = 0; i < runs.size(); ++i) {
      if (interrupt_requested()) throw Interrupted("interrupted");
      const auto start = std::chrono::steady_clock::now();
      runs[i]();
      samples[i].push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
    }
  std::vector<Measured> results;
  for (auto& sample : samples) results.push_back(measured(std::move(sample)));
  return results;
}

}  // namespace filigree
