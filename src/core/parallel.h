// Work sharing across cores. All parallel loops of the engine go through here, so that the thread count is one setting.
// Without OpenMP (the fuzz targets are built so) they run on the calling thread.
#pragma once

#ifdef _OPENMP
#include <omp.h>
#endif

#include <algorithm>
#include <cstdint>

namespace filigree {

// Calls body(begin, end) on disjoint ranges that cover [0, count), each but the last a multiple of `grain` long, on the
// threads of OpenMP's current setting. Which thread gets which range is fixed (static), and ranges depend on the thread
// count: a body whose result depends on how a range is cut must cut it itself. Bodies must not throw.
template <typename Body>
void parallel_for(std::int64_t count, [[maybe_unused]] std::int64_t grain, Body&& body) {
  if (count <= 0) return;
#ifdef _OPENMP
  const std::int64_t pieces = (count + grain - 1) / grain;
  const auto threads = static_cast<std::int64_t>(std::min<std::int64_t>(omp_get_max_threads(), pieces));
  if (threads > 1 && !omp_in_parallel()) {
#pragma omp parallel num_threads(static_cast <int>(threads))
    {
      const std::int64_t thread = omp_get_thread_num();
      const std::int64_t begin = pieces * thread / threads * grain;
      const std::int64_t end = std::min(count, pieces * (thread + 1) / threads * grain);
      if (begin < end) body(begin, end);
    }
    return;
  }
#endif
  body(std::int64_t{0}, count);
}

}  // namespace filigree
