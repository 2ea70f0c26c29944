#include <algorithm>
#include <cmath>

#include "kernels/cuda_test.h"
#include "kernels/norm/norm.h"

namespace filigree::testing {
namespace {

struct Case {
  NormKind kind;
  DType dtype;
};
class NormCuda : public CudaTest, public ::testing::WithParamInterface<Case> {
 protected:
  void check_forward(std::int64_t rows, std::int64_t channels, bool with_residual);
};

// Widths that stay in registers, with one to four units a thread, and widths that do not; rows that make bands of one
// row and of several, the last one shorter.
constexpr std::pair<std::int64_t, std::int64_t> kShapes[] = {{1, 1},     {2, 3},    {3, 64},    {5, 77},   {700, 130},
                                                             {6400, 24}, {67, 768}, {41, 1600}, {5, 2048}, {450, 2056},
                                                             {9, 5120},  {3, 8192}, {3, 8200}};

// With few channels their variance may be small: what is rounded in the mean comes multiplied by 1 / sqrt(variance).
double largest(const Tensor& rstd) {
  const std::vector<double> values = values_of(rstd);
  return std::max(1.0, *std::max_element(values.begin(), values.end()));
}

void NormCuda::check_forward(std::int64_t rows, std::int64_t channels, bool with_residual) {
  const auto [kind, dtype] = GetParam();
  const bool layer = kind == NormKind::layer;
  SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(channels) + (with_residual ? " with a residual" : ""));
  const OwnedTensor x = random_tensor(cpu(), dtype, {rows, channels}, 1);
  const OwnedTensor residual = random_tensor(cpu(), dtype, {rows, channels}, 2);
  const OwnedTensor sum = random_tensor(cpu(), dtype, {rows, channels}, 3);
  const OwnedTensor y = random_tensor(cpu(), dtype, {rows, channels}, 4);
  const OwnedTensor mean = random_tensor(cpu(), DType::f32, {rows}, 5);
  const OwnedTensor rstd = random_tensor(cpu(), DType::f32, {rows}, 6);
  const OwnedTensor gain = random_tensor(cpu(), DType::f32, {channels}, 7);
  const OwnedTensor bias = random_tensor(cpu(), DType::f32, {channels}, 8);
  const OwnedTensor gx = on_gpu(x), gresidual = on_gpu(residual), gsum = on_gpu(sum), gy = on_gpu(y);
  const OwnedTensor gmean = on_gpu(mean), grstd = on_gpu(rstd), ggain = on_gpu(gain), gbias = on_gpu(bias);
  const auto arguments = [&](const Tensor& to, const Tensor& sums, const Tensor& means, const Tensor& rstds,
                             const Tensor& from, const Tensor& added, const Tensor& gains, const Tensor& biases) {
    return NormForwardArgs{.kind = kind,
                           .y = to,
                           .sum = sums,
                           .mean = layer ? means : Tensor{},
                           .rstd = rstds,
                           .x = from,
                           .residual = with_residual ? added : Tensor{},
                           .gain = gains,
                           .bias = layer ? biases : Tensor{}};
  };
  norm_forward(cpu(), arguments(y, sum, mean, rstd, x, residual, gain, bias));
  norm_forward(gpu(), arguments(gy, gsum, gmean, grstd, gx, gresidual, ggain, gbias));
  expect_same(gsum, sum, "sum");
  const std::vector<double> expected = values_of(y), rstds = values_of(rstd);
  const double scale = 8.0 * largest(rstd);
  const auto magnitude = [&](std::size_t i) { return 2.0 * std::abs(expected[i]) + scale; };
  expect_close(on_cpu(gy), expected, 1, magnitude, "y");
  if (layer) expect_equal(gmean, mean, channels, 1.0, "mean");
  expect_close(
      on_cpu(grstd), rstds, channels, [&](std::size_t t) { return 2.0 * rstds[t]; }, "rstd");

  // The sum in place of x, no statistics; by packs and at odd addresses.
  const Shifted moved = on_gpu_shifted(x), into = on_gpu_shifted(y);
  norm_forward(gpu(), arguments(into.view, moved.view, {}, {}, moved.view, gresidual, ggain, gbias));
  expect_same(moved.view, sum, "sum in place at an odd address");
  expect_close(on_cpu(into.view), expected, 1, magnitude, "y at an odd address");
  if (!with_residual) {  // nor a sum
    norm_forward(gpu(), arguments(gy, {}, {}, {}, gx, {}, ggain, gbias));
    expect_close(on_cpu(gy), expected, 1, magnitude, "y alone");
  }
  norm_forward(gpu(), arguments(gy, gx, {}, {}, gx, gresidual, ggain, gbias));
  expect_same(gx, sum, "sum in place");
  expect_close(on_cpu(gy), expected, 1, magnitude, "y with the sum in place");
}

TEST_P(NormCuda, ForwardMatchesTheProcessor) {
  for (const auto& [rows, channels] : kShapes)
    for (const bool residual : {false, true}) check_forward(rows, channels, residual);
}

TEST_P(NormCuda, BackwardMatchesTheProcessorAndRepeats) {
  const auto [kind, dtype] = GetParam();
  const bool layer = kind == NormKind::layer;
  for (const auto& [rows, channels] : kShapes) {
    SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(channels));
    const OwnedTensor s = random_tensor(cpu(), dtype, {rows, channels}, 1);
    const OwnedTensor dy = random_tensor(cpu(), dtype, {rows, channels}, 2);
    const OwnedTensor ds = random_tensor(cpu(), dtype, {rows, channels}, 3);
    const OwnedTensor mean = random_tensor(cpu(), DType::f32, {rows}, 4);
    const OwnedTensor rstd = random_tensor(cpu(), DType::f32, {rows}, 5);
    const OwnedTensor gain = random_tensor(cpu(), DType::f32, {channels}, 6);
    const OwnedTensor dgain = random_tensor(cpu(), DType::f32, {channels}, 7);
    const OwnedTensor dbias = random_tensor(cpu(), DType::f32, {channels}, 8);
    const OwnedTensor y = random_tensor(cpu(), dtype, {rows, channels}, 9);
    norm_forward(cpu(),
                 {.kind = kind, .y = y, .mean = layer ? mean.view() : Tensor{}, .rstd = rstd, .x = s, .gain = gain});
    const OwnedTensor gs = on_gpu(s), gdy = on_gpu(dy), gmean = on_gpu(mean), grstd = on_gpu(rstd),
                      ggain = on_gpu(gain);
    const OwnedTensor gds[2] = {on_gpu(ds), on_gpu(ds)};
    const OwnedTensor gdgain[2] = {on_gpu(dgain), on_gpu(dgain)}, gdbias[2] = {on_gpu(dbias), on_gpu(dbias)};
    norm_backward(cpu(), {.kind = kind,
                          .ds = ds,
                          .dgain = dgain,
                          .dbias = layer ? dbias.view() : Tensor{},
                          .dy = dy,
                          .sum = s,
                          .mean = layer ? mean.view() : Tensor{},
                          .rstd = rstd,
                          .gain = gain});
    for (int run = 0; run < 2; ++run)
      norm_backward(gpu(), {.kind = kind,
                            .ds = gds[run],
                            .dgain = gdgain[run],
                            .dbias = layer ? gdbias[run].view() : Tensor{},
                            .dy = gdy,
                            .sum = gs,
                            .mean = layer ? gmean.view() : Tensor{},
                            .rstd = grstd,
                            .gain = ggain});
    const std::vector<double> expected = values_of(ds);
    const double scale = 8.0 * largest(rstd);
    expect_close(
        on_cpu(gds[0]), expected, 1, [&](std::size_t i) { return 2.0 * std::abs(expected[i]) + scale; }, "ds");
    expect_equal(gdgain[0], dgain, rows, 4.0, "dgain");
    if (layer) expect_equal(gdbias[0], dbias, rows, 4.0, "dbias");
    expect_same(gds[1], on_cpu(gds[0]), "ds again");
    expect_same(gdgain[1], on_cpu(gdgain[0]), "dgain again");
    if (layer) expect_same(gdbias[1], on_cpu(gdbias[0]), "dbias again");
  }
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const NormKind kind : {NormKind::layer, NormKind::rms})
    for (const DType dtype : {DType::f32, DType::bf16}) all.push_back({kind, dtype});
  return all;
}
INSTANTIATE_TEST_SUITE_P(Cases, NormCuda, ::testing::ValuesIn(cases()));

}  // namespace
}  // namespace filigree::testing
