#include <array>
#include <cmath>
#include <vector>

#include "core/memory.h"
#include "core/parallel.h"
#include "core/pattern.h"
#include "core/random.h"
#include "core/tensor.h"
#include "support.h"

namespace filigree {
namespace {

TEST(Bf16, RoundsToNearestEven) {
  EXPECT_EQ(bf16(1.0f).bits, 0x3f80);
  EXPECT_EQ(bf16(1.0f + 0x1p-8f).bits, 0x3f80);  // a tie goes to the even neighbour below
  EXPECT_EQ(bf16(1.0f + 0x3p-8f).bits, 0x3f82);  // and to the even neighbour above
  EXPECT_EQ(bf16(1.0f + 0x1.8p-8f).bits, 0x3f81);
  EXPECT_TRUE(std::isnan(static_cast<float>(bf16(std::nanf("")))));
  EXPECT_EQ(bf16(3.4e38f).bits, 0x7f80);  // overflow rounds to infinity, as IEEE says
}

TEST(Random, IsPhilox4x32With10Rounds) {
  // Known answer of the paper's reference implementation for the all-zero counter and key. Our key words mix in the
  // purpose, so build the key that mixes to zero.
  const auto purpose = static_cast<std::uint32_t>(RandomPurpose::mask) * 0x9E3779B9u;
  const Random random(static_cast<std::uint64_t>(purpose) << 32, RandomPurpose::mask, 0, 0);
  const std::array<std::uint32_t, 4> expected = {0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u};
  EXPECT_EQ(random.words(0), expected);
}

TEST(Random, NormalHasUnitVariance) {
  const Random random(7, RandomPurpose::test);
  double sum = 0, squares = 0;
  constexpr int kCount = 200000;
  for (int i = 0; i < kCount; ++i) {
    const double x = static_cast<double>(random.normal(static_cast<std::uint64_t>(i)));
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / kCount, 0.0, 5 / std::sqrt(kCount));
  EXPECT_NEAR(squares / kCount, 1.0, 5 * std::sqrt(2.0 / kCount));
}

TEST(Memory, CountsByPurposeAndForgets) {
  Memory memory;
  {
    const OwnedTensor tensor = memory.tensor(Purpose::gradients, DType::bf16, {3, 5});
    EXPECT_EQ(memory.bytes(Purpose::gradients), 30);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.view().data) % 64, 0u);
  }
  EXPECT_EQ(memory.total(), 0);
  EXPECT_EQ(memory.peak(), 30);
  EXPECT_EQ(memory.allocations(), 1);
  EXPECT_THROW(memory.allocate(Purpose::weights, ~std::size_t{0} / 2), Error);
}

TEST(Tensor, SliceAndReshape) {
  std::vector<float> data(24);
  const Tensor tensor{data.data(), DType::f32, {4, 6}};
  EXPECT_EQ(tensor.slice(1, 2).data, data.data() + 6);
  EXPECT_EQ(tensor.reshaped({2, 12}).shape, (Shape{2, 12}));
  EXPECT_THROW(tensor.slice(3, 2), Error);
  EXPECT_THROW(tensor.reshaped({5, 5}), Error);
  EXPECT_THROW(tensor.as<bf16>(), Error);
}

TEST(ParallelFor, CoversEveryIndexOnceInMultiplesOfTheGrain) {
  for (const std::int64_t count : {0, 1, 7, 64, 1000}) {
    std::vector<int> seen(static_cast<std::size_t>(count));
    parallel_for(count, 16, [&](std::int64_t begin, std::int64_t end) {
      EXPECT_EQ(begin % 16, 0);
      for (std::int64_t i = begin; i < end; ++i) ++seen[static_cast<std::size_t>(i)];
    });
    for (const int times : seen) EXPECT_EQ(times, 1);
  }
}

TEST(Device, ScratchGrowsAndIsKept) {
  const auto device = Device::cpu();
  void* first = device->scratch(Scratch::kernel, 1000);
  EXPECT_EQ(device->scratch(Scratch::kernel, 10), first);
  EXPECT_NE(device->scratch(Scratch::layer, 10), first);
  const auto before = device->memory().allocations();
  device->scratch(Scratch::kernel, 1000);
  EXPECT_EQ(device->memory().allocations(), before);
}

}  // namespace
}  // namespace filigree
