#include "kernels/norm/norm.h"

#include <cmath>

#include "kernels/kernel_test.h"

namespace filigree::testing {
namespace {

constexpr double kEpsilon = 1e-5;

struct Reference {
  NormKind kind;
  std::int64_t channels;
  std::vector<double> s, gain, bias;

  double mean(std::int64_t t) const {
    if (kind == NormKind::rms) return 0.0;
    double sum = 0.0;
    for (std::int64_t i = 0; i < channels; ++i) sum += s[static_cast<std::size_t>(t * channels + i)];
    return sum / static_cast<double>(channels);
  }
  double rstd(std::int64_t t) const {
    double sum = 0.0;
    for (std::int64_t i = 0; i < channels; ++i)
      sum += std::pow(s[static_cast<std::size_t>(t * channels + i)] - mean(t), 2);
    return 1.0 / std::sqrt(sum / static_cast<double>(channels) + kEpsilon);
  }
  double y(std::int64_t t, std::int64_t i) const { return (at(t, i) - mean(t)) * rstd(t) * gain_at(i) + bias_at(i); }
  // sum over the row of y · dy: what backward differentiates
  double product(std::int64_t t, const std::vector<double>& dy) const {
    const double m = mean(t), r = rstd(t);
    double sum = 0.0;
    for (std::int64_t i = 0; i < channels; ++i)
      sum += ((at(t, i) - m) * r * gain_at(i) + bias_at(i)) * dy[static_cast<std::size_t>(t * channels + i)];
    return sum;
  }
  double at(std::int64_t t, std::int64_t i) const { return s[static_cast<std::size_t>(t * channels + i)]; }
  double gain_at(std::int64_t i) const { return gain[static_cast<std::size_t>(i)]; }
  double bias_at(std::int64_t i) const { return bias.empty() ? 0.0 : bias[static_cast<std::size_t>(i)]; }
};

struct Case {
  NormKind kind;
  DType dtype;
  std::int64_t rows, channels;
  bool residual;
};
class NormTest : public ::testing::TestWithParam<Case> {};

TEST_P(NormTest, ForwardAndBackwardMatchReference) {
  const auto [kind, dtype, rows, channels, with_residual] = GetParam();
  const auto device = Device::cpu();
  const bool layer = kind == NormKind::layer;
  const OwnedTensor x = random_tensor(*device, dtype, {rows, channels}, 1);
  const OwnedTensor residual = random_tensor(*device, dtype, {rows, channels}, 2);
  const OwnedTensor sum = random_tensor(*device, dtype, {rows, channels}, 3);
  const OwnedTensor y = random_tensor(*device, dtype, {rows, channels}, 4);
  const OwnedTensor mean = random_tensor(*device, DType::f32, {rows}, 5);
  const OwnedTensor rstd = random_tensor(*device, DType::f32, {rows}, 6);
  const OwnedTensor gain = random_tensor(*device, DType::f32, {channels}, 7);
  const OwnedTensor bias = random_tensor(*device, DType::f32, {channels}, 8);
  const OwnedTensor dy = random_tensor(*device, dtype, {rows, channels}, 9);
  const OwnedTensor ds = random_tensor(*device, dtype, {rows, channels}, 10);
  const OwnedTensor dgain = random_tensor(*device, DType::f32, {channels}, 11);
  const OwnedTensor dbias = random_tensor(*device, DType::f32, {channels}, 12);
  std::vector<double> expected_ds = values_of(ds), expected_dgain = values_of(dgain), expected_dbias = values_of(dbias);
  const std::vector<double> before = values_of(x), added = values_of(residual), dy_values = values_of(dy);

  norm_forward(*device, {.kind = kind,
                         .y = y,
                         .sum = with_residual ? sum.view() : Tensor{},
                         .mean = layer ? mean.view() : Tensor{},
                         .rstd = rstd,
                         .x = x,
                         .residual = with_residual ? residual.view() : Tensor{},
                         .gain = gain,
                         .bias = layer ? bias.view() : Tensor{}});
  const Tensor s = with_residual ? sum : x;
  if (with_residual) {
    std::vector<double> sums(before.size());
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = before[i] + added[i];
    expect_close(sum, sums, 1, 4.0, "sum");
  }
  Reference reference{kind, channels, values_of(s), values_of(gain), layer ? values_of(bias) : std::vector<double>{}};
  std::vector<double> expected_y(before.size());
  for (std::int64_t t = 0; t < rows; ++t) {
    for (std::int64_t i = 0; i < channels; ++i)
      expected_y[static_cast<std::size_t>(t * channels + i)] = reference.y(t, i);
    if (layer) {
      EXPECT_NEAR(mean.view().as<float>()[t], reference.mean(t), tolerance(DType::f32, channels, 1.0));
    }
    EXPECT_NEAR(rstd.view().as<float>()[t] / reference.rstd(t), 1.0, tolerance(DType::f32, channels, 1.0));
  }
  // With one channel LayerNorm's s - mean vanishes and rstd is 1 / sqrt(epsilon).
  const double largest_rstd = channels == 1 && layer ? 1.0 / std::sqrt(kEpsilon) : 4.0;
  expect_close(
      y, expected_y, 1, [&](std::size_t i) { return std::abs(expected_y[i]) + largest_rstd; }, "y");

  norm_backward(*device, {.kind = kind,
                          .ds = ds,
                          .dgain = dgain,
                          .dbias = layer ? dbias.view() : Tensor{},
                          .dy = dy,
                          .sum = s,
                          .mean = layer ? mean.view() : Tensor{},
                          .rstd = rstd,
                          .gain = gain});
  for (std::int64_t t = 0; t < rows; ++t)
    for (std::int64_t i = 0; i < channels; ++i) {
      const auto at = static_cast<std::size_t>(t * channels + i), c = static_cast<std::size_t>(i);
      if (t < 3) expected_ds[at] += derivative(reference.s, at, [&] { return reference.product(t, dy_values); });
      expected_dgain[c] += dy_values[at] * (reference.at(t, i) - reference.mean(t)) * reference.rstd(t);
      expected_dbias[c] += dy_values[at];
    }
  const std::int64_t checked = std::min<std::int64_t>(rows, 3);
  expected_ds.resize(static_cast<std::size_t>(checked * channels));
  expect_close(
      ds.view().slice(0, checked), expected_ds, 1,
      [&](std::size_t i) { return std::abs(expected_ds[i]) + 4.0 * largest_rstd; }, "ds");
  expect_close(dgain, expected_dgain, rows, 4.0 * largest_rstd, "dgain");
  if (layer) expect_close(dbias, expected_dbias, rows, 4.0, "dbias");
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const NormKind kind : {NormKind::layer, NormKind::rms})
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const bool residual : {false, true})
        for (const auto& [rows, channels] :
             std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 4}, {1, 1}, {2, 3}, {3, 64}, {5, 77}, {150, 130}})
          all.push_back({kind, dtype, rows, channels, residual});
  return all;
}
INSTANTIATE_TEST_SUITE_P(Shapes, NormTest, ::testing::ValuesIn(cases()));

TEST(Norm, SumMayAliasXOrResidualAndStatisticsMayBeAbsent) {
  const auto device = Device::cpu();
  const OwnedTensor gain = random_tensor(*device, DType::f32, {37}, 7);
  std::vector<std::vector<double>> results;
  for (int alias = 0; alias < 3; ++alias) {
    const OwnedTensor x = random_tensor(*device, DType::f32, {4, 37}, 1);
    const OwnedTensor residual = random_tensor(*device, DType::f32, {4, 37}, 2);
    const OwnedTensor other = random_tensor(*device, DType::f32, {4, 37}, 3);
    const OwnedTensor y = random_tensor(*device, DType::f32, {4, 37}, 4);
    const Tensor sum = alias == 0 ? other : alias == 1 ? x : residual;
    norm_forward(*device, {.kind = NormKind::layer, .y = y, .sum = sum, .x = x, .residual = residual, .gain = gain});
    results.push_back(values_of(y));
    results.push_back(values_of(sum));
  }
  EXPECT_EQ(results[2], results[0]);
  EXPECT_EQ(results[4], results[0]);
  EXPECT_EQ(results[3], results[1]);
  EXPECT_EQ(results[5], results[1]);
}

TEST(Norm, BackwardIsIndependentOfTheThreadCount) {
  const auto device = Device::cpu();
  const OwnedTensor s = random_tensor(*device, DType::f32, {300, 65}, 1);
  const OwnedTensor dy = random_tensor(*device, DType::f32, {300, 65}, 2);
  const OwnedTensor ds = random_tensor(*device, DType::f32, {300, 65}, 3);
  const OwnedTensor rstd = random_tensor(*device, DType::f32, {300}, 4);
  const OwnedTensor gain = random_tensor(*device, DType::f32, {65}, 5);
  const OwnedTensor dgain = random_tensor(*device, DType::f32, {65}, 6);
  expect_same_for_any_thread_count(dgain, [&] {
    fill_normal(dgain, 6);
    norm_backward(*device,
                  {.kind = NormKind::rms, .ds = ds, .dgain = dgain, .dy = dy, .sum = s, .rstd = rstd, .gain = gain});
  });
}

TEST(Norm, KeepsPrecisionUnderALargeMean) {
  const auto device = Device::cpu();
  const OwnedTensor x = random_tensor(*device, DType::f32, {1, 256}, 1);
  for (std::int64_t i = 0; i < 256; ++i) store(x, i, 4096.0 + (i % 2 ? 1.0 : -1.0));
  const OwnedTensor y = random_tensor(*device, DType::f32, {1, 256}, 2);
  const OwnedTensor gain = random_tensor(*device, DType::f32, {256}, 3);
  for (std::int64_t i = 0; i < 256; ++i) store(gain, i, 1.0);
  norm_forward(*device, {.kind = NormKind::layer, .y = y, .x = x, .gain = gain});
  for (const double value : values_of(y)) EXPECT_NEAR(std::abs(value), 1.0, 2 * kEpsilon);
}

TEST(Norm, RejectsAResidualWithoutAPlaceForTheSum) {
  const auto device = Device::cpu();
  const OwnedTensor x = random_tensor(*device, DType::f32, {2, 3}, 1);
  const OwnedTensor gain = random_tensor(*device, DType::f32, {3}, 1);
  EXPECT_THROW(norm_forward(*device, {.y = x, .x = x, .residual = x, .gain = gain}), Error);
}

}  // namespace
}  // namespace filigree::testing
