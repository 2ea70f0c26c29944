#include "train/exchange_state.h"

#include <gmock/gmock.h>

#include "comm/virtual_ranks.h"
#include "support.h"

namespace filigree {
namespace {

// Keeps two numbers of its rank, and three that are the same on all.
class Keeper final : public GradientExchange {
 public:
  Keeper(Communicator& communicator, Device& device)
      : GradientExchange(communicator),
        own(device.memory().tensor(Purpose::gradients, DType::f32, {2})),
        shared(device.memory().tensor(Purpose::gradients, DType::u8, {3})) {}

  std::string_view name() const override { return "keeper"; }
  void attach(Device&, const std::vector<Parameter*>&) override {}
  void begin_step(Device&, const ExchangeStep&) override {}
  void gradient_ready(Device&, Parameter&) override {}
  void finish(Device&) override {}
  void save(ExchangeSink& sink) const override {
    sink.put_per_rank("own", own);
    sink.put_shared("shared", shared);
  }
  void load(Device& device, const ExchangeSource& source) override {
    source.load_per_rank(device, "own", own);
    source.load_shared(device, "shared", shared);
  }

  OwnedTensor own, shared;
};

void save(int ranks, const std::filesystem::path& folder) {
  run_virtual_ranks(ranks, [&](Communicator& communicator) {
    const auto device = Device::cpu(1);
    Keeper keeper(communicator, *device);
    const float rank = static_cast<float>(communicator.rank());
    keeper.own.view().as<float>()[0] = rank + 1.0f;
    keeper.own.view().as<float>()[1] = -rank;
    for (std::uint8_t i = 0; i < 3; ++i) keeper.shared.view().as<std::uint8_t>()[i] = i;
    save_exchange(keeper, communicator, *device, communicator.is_first() ? folder : std::filesystem::path());
  });
}

TEST(ExchangeState, EachRankGetsItsOwnBack) {
  const testing::TemporaryFolder folder;
  save(3, folder.path());
  run_virtual_ranks(3, [&](Communicator& communicator) {
    const auto device = Device::cpu(1);
    Keeper keeper(communicator, *device);
    keeper.load(*device, ExchangeReader(folder.path(), communicator));
    EXPECT_THAT(testing::values_of(keeper.own), ::testing::ElementsAre(communicator.rank() + 1, -communicator.rank()));
    EXPECT_THAT(testing::values_of(keeper.shared), ::testing::ElementsAre(0, 1, 2));
  });
}

TEST(ExchangeState, OtherNumbersOfRanksShareTheSum) {
  const testing::TemporaryFolder folder;
  save(3, folder.path());
  for (const int ranks : {1, 2, 4})
    run_virtual_ranks(ranks, [&](Communicator& communicator) {
      const auto device = Device::cpu(1);
      Keeper keeper(communicator, *device);
      keeper.load(*device, ExchangeReader(folder.path(), communicator));
      EXPECT_THAT(testing::values_of(keeper.own), ::testing::ElementsAre(6.0 / ranks, -3.0 / ranks));
    });
}

TEST(ExchangeState, WhatIsMissingIsNamed) {
  const testing::TemporaryFolder folder;
  SingleRank communicator;
  const auto device = Device::cpu(1);
  Keeper keeper(communicator, *device);
  const ExchangeReader reader(folder.path(), communicator);
  EXPECT_FALSE(reader.has("own"));
  try {
    keeper.load(*device, reader);
    FAIL();
  } catch (const UserError& error) {
    EXPECT_EQ(error.what(), (folder.path() / kExchangeFile).string() + ": has no own");
  }
}

}  // namespace
}  // namespace filigree
