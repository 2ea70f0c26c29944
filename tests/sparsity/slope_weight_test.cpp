#include "sparsity/slope_weight.h"

#include <map>

#include "kernels/elementwise/elementwise.h"
#include "slope_reference.h"
#include "sparsity/dense_weight.h"
#include "support.h"

namespace filigree {
namespace {

using testing::column_pruned;
using testing::expanded;
using testing::kept_places;
using testing::random_tensor;
using testing::values_of;

LinearSpec spec_of(std::int64_t outputs, std::int64_t inputs, Pattern pattern, DType dtype = DType::f32) {
  return {.name = "layer", .inputs = inputs, .outputs = outputs, .dtype = dtype, .method = "slope", .pattern = pattern};
}

// y = x · W of plain doubles: (T, A) by (A, B) or, transposed, by (B, A).
std::vector<double> product(const std::vector<double>& x, const std::vector<double>& w, std::int64_t tokens,
                            std::int64_t inner, std::int64_t columns, bool transposed) {
  std::vector<double> y(static_cast<std::size_t>(tokens * columns));
  for (std::int64_t t = 0; t < tokens; ++t)
    for (std::int64_t c = 0; c < columns; ++c)
      for (std::int64_t i = 0; i < inner; ++i)
        y[static_cast<std::size_t>(t * columns + c)] +=
            x[static_cast<std::size_t>(t * inner + i)] *
            w[static_cast<std::size_t>(transposed ? c * inner + i : i * columns + c)];
  return y;
}

void expect_near(const Tensor& got, const std::vector<double>& want, double tolerance) {
  const std::vector<double> values = values_of(got);
  ASSERT_EQ(values.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(values[i], want[i], tolerance) << "at " << i;
}

class SlopeProducts : public ::testing::TestWithParam<std::tuple<Pattern, DType, Backend>> {};

// The three products against the definition, for every pattern and both backends; dx against W^{R,C} and not W^R.
TEST_P(SlopeProducts, AreThoseOfThePaper) {
  const auto [pattern, dtype, backend] = GetParam();
  const auto device = Device::cpu();
  const std::int64_t tokens = 19, inputs = 64, outputs = 48;
  SlopeWeight weight(*device, spec_of(outputs, inputs, pattern, dtype));
  weight.initialize(*device, random_tensor(*device, DType::f32, {outputs, inputs}, 1), false);
  PlanTable table(false);
  std::map<std::string, PlanEntry> forced;
  for (const char* which : {"forward", "dx", "dw"})
    forced[std::string(which) + " 48x64 " + to_string(pattern) + " " + std::string(name_of(dtype)) + " tokens 19"] = {
        backend, 0, 0};
  table.restore(forced);
  weight.plan(*device, table, tokens);
  ASSERT_EQ(table.entries().size(), 3u) << "the keys above are not the engine's";

  const OwnedTensor x = random_tensor(*device, dtype, {tokens, inputs}, 2);
  const OwnedTensor dy = random_tensor(*device, dtype, {tokens, outputs}, 3);
  const OwnedTensor bias = random_tensor(*device, DType::f32, {outputs}, 4);
  const OwnedTensor y = random_tensor(*device, dtype, {tokens, outputs}, 5);  // poison
  const OwnedTensor dx = random_tensor(*device, dtype, {tokens, inputs}, 6);
  weight.forward(*device, y, x, bias);
  weight.input_gradient(*device, dx, dy);
  weight.weight_gradient(*device, dy, x, false);

  const std::vector<double> row_pruned = expanded(weight.row_pruned());
  const std::vector<bool> kept = kept_places(weight.row_pruned());
  std::vector<double> want = product(values_of(x), row_pruned, tokens, inputs, outputs, true);
  const std::vector<double> offsets = values_of(bias);
  for (std::size_t i = 0; i < want.size(); ++i) want[i] += offsets[i % static_cast<std::size_t>(outputs)];
  expect_near(y, want, testing::tolerance(dtype, inputs, 4.0));

  const std::vector<double> both = column_pruned(row_pruned, kept, outputs, inputs, pattern);
  ASSERT_NE(both, row_pruned);
  expect_near(dx, product(values_of(dy), both, tokens, outputs, inputs, false),
              testing::tolerance(dtype, outputs, 4.0));

  std::vector<double> gradient;
  const std::vector<double> dys = values_of(dy), xs = values_of(x);
  for (std::int64_t n = 0; n < outputs; ++n)
    for (std::int64_t k = 0; k < inputs; ++k) {
      if (!kept[static_cast<std::size_t>(n * inputs + k)]) continue;
      double sum = 0.0;
      for (std::int64_t t = 0; t < tokens; ++t)
        sum += dys[static_cast<std::size_t>(t * outputs + n)] * xs[static_cast<std::size_t>(t * inputs + k)];
      gradient.push_back(sum);
    }
  const Tensor stored = weight.parameters()[0]->gradient();
  expect_near(stored, gradient, testing::tolerance(DType::f32, tokens, 4.0));
  // A second micro-batch adds.
  weight.weight_gradient(*device, dy, x, true);
  for (double& value : gradient) value *= 2.0;
  expect_near(stored, gradient, testing::tolerance(DType::f32, tokens, 8.0));
}

INSTANTIATE_TEST_SUITE_P(Patterns, SlopeProducts,
                         ::testing::Combine(::testing::Values(Pattern{1, 2}, Pattern{2, 4}, Pattern{1, 4},
                                                              Pattern{2, 8}, Pattern{4, 8}, Pattern{8, 16}),
                                            ::testing::Values(DType::f32, DType::bf16),
                                            ::testing::Values(Backend::sparse, Backend::dense)),
                         [](const auto& test) {
                           const Pattern pattern = std::get<0>(test.param);
                           return std::to_string(pattern.keep) + "_" + std::to_string(pattern.of) + "_" +
                                  std::string(name_of(std::get<1>(test.param))) +
                                  (std::get<2>(test.param) == Backend::sparse ? "_sparse" : "_dense");
                         });

TEST(SlopeWeight, DerivedCopyIsAFunctionOfTheValuesAfterEveryChange) {
  const auto device = Device::cpu();
  for (const DType dtype : {DType::f32, DType::bf16}) {
    SlopeWeight weight(*device, spec_of(32, 40, {2, 4}, dtype));
    weight.initialize(*device, random_tensor(*device, DType::f32, {32, 40}, 1), false);
    for (int step = 0; step < 5; ++step) {
      // Values move, some to exactly zero, some to equal magnitudes: ties and kept zeros.
      Parameter& values = *weight.parameters()[0];
      auto* master = values.master().as<float>();
      for (std::int64_t i = 0; i < values.count(); ++i) {
        master[i] += 0.25f * static_cast<float>((i + step) % 3 - 1);
        if ((i + step) % 7 == 0) master[i] = 0.0f;
        if ((i + step) % 11 == 0) master[i] = (i % 2 == 0) ? 0.5f : -0.5f;
      }
      const std::vector<double> mask_before = values_of(weight.row_pruned().mask);
      values.round_master(*device);
      weight.refresh(*device);
      EXPECT_EQ(values_of(weight.row_pruned().mask), mask_before) << "a kept zero must keep its place";

      const std::vector<double> row_pruned = expanded(weight.row_pruned());
      const std::vector<bool> kept = kept_places(weight.row_pruned());
      const std::vector<double> want = column_pruned(row_pruned, kept, 32, 40, {2, 4});
      const std::vector<double> transposed = expanded(weight.column_pruned());  // (K, N)
      for (std::int64_t n = 0; n < 32; ++n)
        for (std::int64_t k = 0; k < 40; ++k) {
          const double value = transposed[static_cast<std::size_t>(k * 32 + n)];
          ASSERT_EQ(value, want[static_cast<std::size_t>(n * 40 + k)]);
          if (!kept[static_cast<std::size_t>(n * 40 + k)]) {
            ASSERT_EQ(value, 0.0);
            ASSERT_FALSE(std::signbit(value)) << "padding is +0";
          }
        }
      for (std::int64_t k = 0; k < 40; ++k)
        for (std::int64_t band = 0; band < 32; band += 4) {
          int count = 0;
          for (std::int64_t n = band; n < band + 4; ++n) count += testing::bit(weight.column_pruned().mask, k, n);
          ASSERT_EQ(count, 2);
        }
    }
  }
}

TEST(SlopeWeight, FixedColumnMaskIsChosenOnce) {
  const auto device = Device::cpu();
  LinearSpec spec = spec_of(16, 16, {2, 4});
  spec.fixed_column_mask = true;
  SlopeWeight weight(*device, spec);
  weight.initialize(*device, random_tensor(*device, DType::f32, {16, 16}, 1), false);
  const std::vector<double> mask = values_of(weight.column_pruned().mask);
  Parameter& values = *weight.parameters()[0];
  testing::fill_normal(values.values(), 9);
  weight.refresh(*device);
  EXPECT_EQ(values_of(weight.column_pruned().mask), mask);
  const std::vector<double> row_pruned = expanded(weight.row_pruned());
  const std::vector<double> transposed = expanded(weight.column_pruned());
  for (int n = 0; n < 16; ++n)
    for (int k = 0; k < 16; ++k)
      if (const double value = transposed[static_cast<std::size_t>(k * 16 + n)]; value != 0.0) {
        EXPECT_EQ(value, row_pruned[static_cast<std::size_t>(n * 16 + k)]);
      }
}

TEST(SlopeWeight, InitializationKeepsTheEnergyOfTheDenseMatrix) {
  const auto device = Device::cpu();
  const OwnedTensor dense = random_tensor(*device, DType::f32, {256, 256}, 1);
  const double all = sum_of_squares(*device, dense);
  for (const char* mask : {"random", "magnitude"}) {
    LinearSpec spec = spec_of(256, 256, {2, 4});
    spec.mask = mask;
    SlopeWeight scaled(*device, spec);
    scaled.initialize(*device, dense, false);
    EXPECT_NEAR(sum_of_squares(*device, scaled.parameters()[0]->values()) / all, 1.0, 1e-4) << mask;
    SlopeWeight trained(*device, spec);
    trained.initialize(*device, dense, true);
    // A random half keeps half of the energy (slope.md: factor 1.41); the larger half about 0.87 (factor 1.07).
    const double kept = sum_of_squares(*device, trained.parameters()[0]->values()) / all;
    EXPECT_NEAR(kept, std::string(mask) == "random" ? 0.5 : 0.87, 0.02) << mask;
  }
}

TEST(SlopeWeight, RescaleScalesDx) {
  const auto device = Device::cpu();
  const OwnedTensor dense = random_tensor(*device, DType::f32, {32, 32}, 1);
  const OwnedTensor dy = random_tensor(*device, DType::f32, {8, 32}, 2);
  std::vector<std::vector<double>> results;
  for (const float factor : {1.0f, 1.231f}) {
    LinearSpec spec = spec_of(32, 32, {2, 4});
    spec.dx_rescale = factor;
    SlopeWeight weight(*device, spec);
    weight.initialize(*device, dense, false);
    const OwnedTensor dx = device->memory().tensor(Purpose::workspace, DType::f32, {8, 32});
    weight.input_gradient(*device, dx, dy);
    results.push_back(values_of(dx));
  }
  for (std::size_t i = 0; i < results[0].size(); ++i) EXPECT_NEAR(results[1][i], 1.231 * results[0][i], 1e-5);
}

TEST(SlopeWeight, GoesOnFromADenseRunWithItsMoments) {
  const auto device = Device::cpu();
  LinearSpec spec = spec_of(32, 32, {2, 4});
  spec.method = "dense";
  DenseWeight dense(*device, spec);
  dense.initialize(*device, random_tensor(*device, DType::f32, {32, 32}, 1), false);
  testing::fill_normal(dense.parameters()[0]->m(), 2);
  testing::fill_normal(dense.parameters()[0]->v(), 3);
  spec.method = "slope";
  spec.mask = "magnitude";
  const auto sparse = sparsify(*device, dense, spec);
  const auto& slope = dynamic_cast<const SlopeWeight&>(*sparse);
  for (const auto content : {LinearWeight::Content::values, LinearWeight::Content::m, LinearWeight::Content::v}) {
    const OwnedTensor before = device->memory().tensor(Purpose::workspace, DType::f32, {32, 32});
    const OwnedTensor after = device->memory().tensor(Purpose::workspace, DType::f32, {32, 32});
    dense.expand(*device, before, content);
    sparse->expand(*device, after, content);
    const auto want = values_of(before), got = values_of(after);
    for (std::int64_t i = 0; i < 32 * 32; ++i)
      EXPECT_EQ(got[static_cast<std::size_t>(i)],
                testing::bit(slope.row_pruned().mask, i / 32, i % 32) ? want[static_cast<std::size_t>(i)] : 0.0);
  }
}

TEST(SlopeWeight, HoldsItsBytesAndNothingDense) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const auto device = Device::cpu();
    SlopeWeight weight(*device, spec_of(256, 512, {2, 4}, dtype));
    const std::int64_t weights = 256 * 512;
    // fp32: values 2 + copy 2 + masks 1/4 + gradient 2 + moments 4; bf16: 1 + 1 + 1/4 + gradient 2 + master 2 +
    // moments 4.
    EXPECT_EQ(weight.bytes(), dtype == DType::f32 ? weights * 41 / 4 : weights * 41 / 4);
    EXPECT_EQ(device->memory().total(), weight.bytes());
    // At most 0.62 of the dense layer (values 4, gradient 4, moments 8; or 2, 4, master 4, 8).
    EXPECT_LE(static_cast<double>(weight.bytes()) / static_cast<double>(weight.dense_bytes()),
              dtype == DType::bf16 ? 0.62 : 0.65);
    LinearSpec inference = spec_of(256, 512, {2, 4}, dtype);
    inference.mode = Mode::inference;
    const auto other = Device::cpu();
    SlopeWeight served(*other, inference);
    EXPECT_EQ(other->memory().total() * 16, dtype == DType::f32 ? weights * 34 : weights * 18);
  }
}

}  // namespace
}  // namespace filigree
