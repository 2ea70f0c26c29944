// Shared by the kernel tests: comparison of a tensor with a double reference, finite differences, thread counts.
#pragma once

#include <omp.h>

#include <functional>
#include <string>
#include <vector>

#include "support.h"

namespace filigree::testing {

// Runs `body` once with one thread and once with several, and expects the same bytes in `result`.
template <typename Body>
void expect_same_for_any_thread_count(const Tensor& result, const Body& body) {
  const int before = omp_get_max_threads();
  std::vector<std::vector<double>> results;
  for (const int threads : {1, 2, 3, 7}) {
    omp_set_num_threads(threads);
    body();
    results.push_back(values_of(result));
  }
  omp_set_num_threads(before);
  for (std::size_t i = 1; i < results.size(); ++i) EXPECT_EQ(results[i], results[0]) << "threads case " << i;
}

// Each element within tolerance(dtype, length, magnitude of that element).
inline void expect_close(const Tensor& actual, const std::vector<double>& expected, std::int64_t length,
                         const std::function<double(std::size_t)>& magnitude, const std::string& what) {
  const std::vector<double> values = values_of(actual);
  ASSERT_EQ(values.size(), expected.size()) << what;
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_NEAR(values[i], expected[i], tolerance(actual.dtype, length, magnitude(i))) << what << ", element " << i;
}

inline void expect_close(const Tensor& actual, const std::vector<double>& expected, std::int64_t length,
                         double magnitude, const std::string& what) {
  expect_close(
      actual, expected, length, [=](std::size_t) { return magnitude; }, what);
}

// d function / d x[index] by a central difference of fourth order; error about 1e-11 for functions of size 1.
inline double derivative(std::vector<double>& x, std::size_t index, const std::function<double()>& function) {
  const double center = x[index], step = 1e-3;
  const auto at = [&](double offset) {
    x[index] = center + offset;
    return function();
  };
  const double result = (8.0 * (at(step) - at(-step)) - (at(2 * step) - at(-2 * step))) / (12.0 * step);
  x[index] = center;
  return result;
}

}  // namespace filigree::testing
