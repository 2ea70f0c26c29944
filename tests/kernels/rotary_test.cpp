#include "kernels/rotary/rotary.h"

#include <cmath>

#include "kernels/kernel_test.h"

namespace filigree::testing {
namespace {

struct Case {
  DType dtype;
  std::int64_t sequences, positions, size, start;
  int heads, kv_heads;
};
class RotaryTest : public ::testing::TestWithParam<Case> {};

TEST_P(RotaryTest, TurnsQueriesAndKeysByTheirAngle) {
  const auto [dtype, sequences, positions, size, start, heads, kv_heads] = GetParam();
  const auto device = Device::cpu();
  const std::int64_t width = (heads + 2 * kv_heads) * size;
  const OwnedTensor qkv = random_tensor(*device, dtype, {sequences, positions, width}, 1);
  const OwnedTensor table = device->memory().tensor(Purpose::workspace, DType::f32, {start + positions, size});
  rotary_table(table, 10000.0);
  const std::vector<double> before = values_of(qkv);
  std::vector<double> expected = before;
  for (std::int64_t token = 0; token < sequences * positions; ++token)
    for (std::int64_t head = 0; head < heads + kv_heads; ++head)
      for (std::int64_t i = 0; i < size / 2; ++i) {
        const double position = static_cast<double>(start + token % positions);
        const double angle = position * std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(size));
        const auto lower = static_cast<std::size_t>(token * width + head * size + i);
        const auto upper = lower + static_cast<std::size_t>(size / 2);
        expected[lower] = before[lower] * std::cos(angle) - before[upper] * std::sin(angle);
        expected[upper] = before[lower] * std::sin(angle) + before[upper] * std::cos(angle);
      }
  RotaryArgs args = {.qkv = qkv, .table = table, .start = start, .heads = heads, .kv_heads = kv_heads};
  rotary(*device, args);
  expect_close(qkv, expected, 2, 3.0, "turned");
  args.inverse = true;
  rotary(*device, args);
  expect_close(qkv, before, 4, 3.0, "turned back");
}

INSTANTIATE_TEST_SUITE_P(Shapes, RotaryTest,
                         ::testing::Values(Case{DType::f32, 1, 1, 2, 0, 1, 1}, Case{DType::f32, 2, 5, 64, 3, 4, 2},
                                           Case{DType::f32, 2, 9, 38, 1, 3, 1}, Case{DType::f32, 0, 5, 8, 0, 2, 2},
                                           Case{DType::bf16, 2, 5, 64, 3, 4, 2}, Case{DType::bf16, 3, 4, 10, 7, 1, 1}));

TEST(Rotary, RejectsPositionsPastTheTable) {
  const auto device = Device::cpu();
  const OwnedTensor qkv = random_tensor(*device, DType::f32, {1, 3, 12}, 1);
  const OwnedTensor table = device->memory().tensor(Purpose::workspace, DType::f32, {4, 4});
  EXPECT_THROW(rotary(*device, {.qkv = qkv, .table = table, .start = 2, .heads = 1, .kv_heads = 1}), Error);
}

}  // namespace
}  // namespace filigree::testing
