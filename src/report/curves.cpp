#include "report/curves.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace filigree {
namespace {

std::vector<CurvePoint> all_points(const std::vector<double>& values) {
  std::vector<CurvePoint> points;
  points.reserve(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) points.push_back({i, values[i]});
  return points;
}

// The least-squares line through the finite values within `reach` of `at`, evaluated at `at`.
double line_value(const std::vector<double>& values, std::size_t at, std::size_t reach) {
  const std::size_t begin = at - std::min(at, reach);
  const std::size_t end = std::min(values.size(), at + reach + 1);
  double n = 0, sum_u = 0, sum_uu = 0, sum_y = 0, sum_uy = 0;  // u: places to the right of `at`
  for (std::size_t i = begin; i < end; ++i) {
    if (!std::isfinite(values[i])) continue;
    const double u = static_cast<double>(i) - static_cast<double>(at);
    n += 1;
    sum_u += u;
    sum_uu += u * u;
    sum_y += values[i];
    sum_uy += u * values[i];
  }
  const double determinant = n * sum_uu - sum_u * sum_u;
  return determinant > 0 ? (sum_uu * sum_y - sum_u * sum_uy) / determinant : sum_y / n;
}

}  // namespace

std::vector<CurvePoint> downsample(const std::vector<double>& values, std::size_t limit) {
  if (values.size() <= limit) return all_points(values);
  const std::size_t buckets = limit / 2 - 1;  // one pair of points is left for the first and the last value
  std::vector<CurvePoint> points;
  points.reserve(limit);
  points.push_back({0, values.front()});
  const std::size_t inner = values.size() - 2;
  for (std::size_t bucket = 0; bucket < buckets; ++bucket) {
    const std::size_t begin = 1 + inner * bucket / buckets;
    const std::size_t end = 1 + inner * (bucket + 1) / buckets;
    std::size_t low = end, high = end;
    for (std::size_t i = begin; i < end; ++i) {
      if (!std::isfinite(values[i])) continue;
      if (low == end || values[i] < values[low]) low = i;
      if (high == end || values[i] > values[high]) high = i;
    }
    if (low == end) {
      points.push_back({begin, std::numeric_limits<double>::quiet_NaN()});
      continue;
    }
    const auto [first, second] = std::minmax(low, high);
    points.push_back({first, values[first]});
    if (second != first) points.push_back({second, values[second]});
  }
  points.push_back({values.size() - 1, values.back()});
  return points;
}

std::vector<CurvePoint> trend(const std::vector<double>& values, std::size_t limit, std::size_t reach) {
  std::vector<CurvePoint> points;
  const std::size_t count = std::min(limit, values.size());
  points.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t at = count == 1 ? 0 : (values.size() - 1) * i / (count - 1);
    points.push_back({at, std::isfinite(values[at]) ? line_value(values, at, reach) : values[at]});
    if (!std::isfinite(points.back().value)) points.back().value = std::numeric_limits<double>::quiet_NaN();
  }
  return points;
}

}  // namespace filigree
