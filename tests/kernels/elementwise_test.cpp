#include "kernels/elementwise/elementwise.h"

#include <cmath>
#include <limits>

#include "kernels/kernel_test.h"

namespace filigree::testing {
namespace {

class ElementwiseTest : public ::testing::TestWithParam<std::tuple<DType, DType, std::int64_t>> {};

TEST_P(ElementwiseTest, AddConvertScaleAndFillMatchReference) {
  const auto [y_type, x_type, count] = GetParam();
  const auto device = Device::cpu();
  const OwnedTensor y = random_tensor(*device, y_type, {count}, 1);
  const OwnedTensor x = random_tensor(*device, x_type, {count}, 2);
  const std::vector<double> ys = values_of(y), xs = values_of(x);
  std::vector<double> expected(ys.size());
  add(*device, y, x);
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = ys[i] + xs[i];
  expect_close(y, expected, 1, 4.0, "add");
  convert(*device, y, x);
  for (std::size_t i = 0; i < expected.size(); ++i)
    expected[i] = y_type == DType::bf16 ? static_cast<float>(bf16(static_cast<float>(xs[i]))) : xs[i];
  EXPECT_EQ(values_of(y), expected) << "convert";
  scale(*device, y, -0.5f);
  for (double& value : expected) value *= -0.5;
  EXPECT_EQ(values_of(y), expected) << "scale by a power of two is exact";
  fill(*device, y, 3.0f);
  EXPECT_EQ(values_of(y), std::vector<double>(expected.size(), 3.0));
}

INSTANTIATE_TEST_SUITE_P(Types, ElementwiseTest,
                         ::testing::Combine(::testing::Values(DType::f32, DType::bf16),
                                            ::testing::Values(DType::f32, DType::bf16),
                                            ::testing::Values(0, 1, 15, 16, 17, 4096, 10001)));

TEST(Elementwise, ConversionRoundsEveryKindOfValueAsBf16Does) {
  const auto device = Device::cpu();
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> special = {0.0f,   -0.0f,   inf,     -inf,        std::nanf(""),
                                      1e-45f, -1e-39f, 3.4e38f, 1.00390625f, 1.01171875f};
  const auto count = static_cast<std::int64_t>(special.size()) * 3;
  const OwnedTensor x = device->memory().tensor(Purpose::workspace, DType::f32, {count});
  const OwnedTensor y = device->memory().tensor(Purpose::workspace, DType::bf16, {count});
  for (std::int64_t i = 0; i < count; ++i)
    x.view().as<float>()[i] = special[static_cast<std::size_t>(i) % special.size()];
  convert(*device, y, x);
  for (std::int64_t i = 0; i < count; ++i)
    EXPECT_EQ(y.view().as<bf16>()[i].bits, bf16(x.view().as<float>()[i]).bits) << x.view().as<float>()[i];
}

TEST(Elementwise, ColumnSumsAccumulate) {
  const auto device = Device::cpu();
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const auto& [rows, columns] :
         std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 3}, {1, 1}, {5, 200}, {700, 67}}) {
      const OwnedTensor x = random_tensor(*device, dtype, {rows, columns}, 1);
      const OwnedTensor sum = random_tensor(*device, DType::f32, {columns}, 2);
      std::vector<double> expected = values_of(sum);
      const std::vector<double> xs = values_of(x);
      for (std::size_t i = 0; i < xs.size(); ++i) expected[i % expected.size()] += xs[i];
      expect_same_for_any_thread_count(sum, [&, n = columns] {
        fill_normal(sum, 2);
        add_column_sums(*device, sum, x);
        EXPECT_EQ(sum.view().count(), n);
      });
      expect_close(sum, expected, rows + 1, 1.0, "column sums");
    }
}

TEST(Elementwise, SumOfSquares) {
  const auto device = Device::cpu();
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t count : {0, 1, 17, 4096, 50001}) {
      const OwnedTensor x = random_tensor(*device, dtype, {count}, 1);
      double expected = 0.0;
      for (const double value : values_of(x)) expected += value * value;
      EXPECT_NEAR(sum_of_squares(*device, x), expected, 1e-12 * expected);
    }
  const OwnedTensor x = random_tensor(*device, DType::f32, {100}, 1);
  store(x, 99, std::numeric_limits<double>::infinity());
  EXPECT_FALSE(std::isfinite(sum_of_squares(*device, x)));
}

}  // namespace
}  // namespace filigree::testing
