// Long curves made short enough to draw: a page of a million steps must stay a page.
#pragma once

#include <cstddef>
#include <vector>

namespace filigree {

struct CurvePoint {
  std::size_t index = 0;  // into the full curve
  double value = 0.0;     // NaN: the line breaks here
};

// At most `limit` points (an even number, at least 4) of `values`. The curve is cut into limit / 2 equal buckets and
// each gives its smallest and its largest value, in their order, so that no spike gets lost. The first and the last
// value are always kept. A bucket without a finite value gives one NaN. Curves that are short enough are returned
// whole.
std::vector<CurvePoint> downsample(const std::vector<double>& values, std::size_t limit);

// Exponential moving average over about `window` values, corrected for its start (as Adam's moments are), so that the
// first average is the first value. A value that is not finite leaves the average as it is and is NaN in the result.
std::vector<double> smooth(const std::vector<double>& values, double window);

// Every n-th value and the last, at most `limit` (at least 2): for curves that have been smoothed already.
std::vector<CurvePoint> subsample(const std::vector<double>& values, std::size_t limit);

}  // namespace filigree
