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

std::vector<double> smooth(const std::vector<double>& values, double window) {
  const double keep = window > 1 ? 1 - 1 / window : 0.0;
  std::vector<double> result;
  result.reserve(values.size());
  double sum = 0.0, weight = 0.0;
  for (const double value : values) {
    if (!std::isfinite(value)) {
      result.push_back(std::numeric_limits<double>::quiet_NaN());
      continue;
    }
    sum = keep * sum + (1 - keep) * value;
    weight = keep * weight + (1 - keep);
    result.push_back(sum / weight);
  }
  return result;
}

std::vector<CurvePoint> subsample(const std::vector<double>& values, std::size_t limit) {
  if (values.size() <= limit) return all_points(values);
  std::vector<CurvePoint> points;
  points.reserve(limit);
  for (std::size_t i = 0; i < limit; ++i) {
    const std::size_t index = (values.size() - 1) * i / (limit - 1);
    points.push_back({index, values[index]});
  }
  return points;
}

}  // namespace filigree
