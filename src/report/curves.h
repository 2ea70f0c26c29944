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

// The trend of a noisy curve at `limit` evenly spread points (at least 2; all values if there are fewer): the value
// there of the least-squares line through the values at most `reach` places away. Unlike a running average it does not
// lag behind a falling curve, and at the ends it goes on as the last stretch went. Values that are not finite are left
// out; where the value itself is not finite the trend is NaN.
std::vector<CurvePoint> trend(const std::vector<double>& values, std::size_t limit, std::size_t reach);

}  // namespace filigree
