#include "sparsity/state_sharding.h"

#include "kernels/elementwise/elementwise.h"
#include "sparsity/parameter.h"
#include "support.h"

namespace filigree {
namespace {

// One of several ranks, whose parts are in the test's hands.
class TestSharding final : public StateSharding {
 public:
  TestSharding(int rank, int ranks) : rank_(rank), ranks_(ranks) {}
  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }
  void gather(Device& device, const Tensor& whole, const Tensor& part) const override {
    for (int rank = 0; rank < ranks_; ++rank) {
      const Tensor& from = rank == rank_ ? part : parts[static_cast<std::size_t>(rank)];
      device.copy(whole.slice(rank * part.count(), part.count()), from);
    }
  }
  std::vector<Tensor> parts;

 private:
  int rank_, ranks_;
};

TEST(StateSharding, EachElementIsKeptOnceAndTheRestByAll) {
  for (const int ranks : {1, 2, 3, 4, 7})
    for (const std::int64_t count : {0, 1, 63, 64, 255, 256, 257, 4096, 10007}) {
      std::vector<int> kept(static_cast<std::size_t>(count), 0);
      std::int64_t rest = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const TestSharding sharding(rank, ranks);
        const StateShard shard = state_shard(count, &sharding);
        for (std::int64_t i = 0; i < shard.part; ++i) ++kept[static_cast<std::size_t>(shard.begin + i)];
        for (std::int64_t i = 0; i < shard.rest; ++i) ++kept[static_cast<std::size_t>(shard.rest_begin + i)];
        EXPECT_EQ(shard.part % 64, 0);
        rest = shard.rest;
      }
      EXPECT_TRUE(ranks == 1 ? rest == count : rest < 64 * ranks) << count << " on " << ranks;
      for (std::int64_t i = 0; i < count; ++i)
        EXPECT_EQ(kept[static_cast<std::size_t>(i)], i < count - rest ? 1 : ranks) << i << " of " << count;
    }
  EXPECT_EQ(state_shard(100, nullptr).rest, 100);
}

TEST(StateSharding, AParameterKeepsItsPartsAndGivesTheWhole) {
  const auto device = Device::cpu(1);
  constexpr int kRanks = 3;
  const Shape shape{21, 31};  // 3 parts of 192, and 75
  for (const DType dtype : {DType::f32, DType::bf16}) {
    std::vector<std::unique_ptr<TestSharding>> shardings;
    std::vector<std::unique_ptr<Parameter>> ranks;
    const OwnedTensor values = testing::random_tensor(*device, DType::f32, shape, 1);
    const OwnedTensor moments = testing::random_tensor(*device, DType::f32, shape, 2);
    for (int rank = 0; rank < kRanks; ++rank) {
      shardings.push_back(std::make_unique<TestSharding>(rank, kRanks));
      ranks.push_back(std::make_unique<Parameter>(
          *device, ParameterOptions{.name = "w", .shape = shape, .dtype = dtype, .sharding = shardings.back().get()},
          Mode::training));
      Parameter& own = *ranks.back();
      EXPECT_EQ(own.m().count(), 192 + 75);
      EXPECT_EQ(own.master().count(), dtype == DType::f32 ? shape.count() : 192 + 75);
      own.assign(*device, values);
      const WholeState room = own.room(*device, own.m());
      device->copy(room, moments);
      own.keep(*device, own.m(), room);
    }
    const OwnedTensor rounded = device->memory().tensor(Purpose::workspace, dtype, shape);
    convert(*device, rounded, values);
    for (int rank = 0; rank < kRanks; ++rank) {
      const Parameter& own = *ranks[static_cast<std::size_t>(rank)];
      EXPECT_EQ(testing::values_of(own.values()), testing::values_of(rounded));
      const auto gathered = [&](const auto& state) {
        TestSharding& sharding = *shardings[static_cast<std::size_t>(rank)];
        sharding.parts.clear();
        for (const auto& each : ranks) sharding.parts.push_back(state(*each).slice(0, 192));
        return testing::values_of(own.whole(*device, state(own)));
      };
      EXPECT_EQ(gathered([](const Parameter& each) { return each.m(); }), testing::values_of(moments));
      if (!own.has_master()) continue;
      EXPECT_EQ(gathered([](const Parameter& each) { return each.master(); }), testing::values_of(values));
    }
    const std::int64_t value = dtype == DType::f32 ? 4 : 2, master = dtype == DType::f32 ? 0 : 4;
    EXPECT_EQ(ranks[0]->bytes(), shape.count() * (value + 4) + (192 + 75) * (master + 8));
    EXPECT_EQ(ranks[0]->bytes(), Parameter::dense_bytes(shape.count(), dtype, Mode::training, shardings[0].get()));
  }
}

}  // namespace
}  // namespace filigree
