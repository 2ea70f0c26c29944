#include "comm/communicator.h"

#include <gmock/gmock.h>

#include <atomic>

#include "comm/virtual_ranks.h"
#include "support.h"

namespace filigree {
namespace {

using testing::random_tensor;

std::vector<double> values_on_host(const Device& device, const Tensor& tensor) {
  std::vector<std::byte> bytes(tensor.bytes());
  device.copy_to_host(bytes.data(), tensor);
  return testing::values_of({bytes.data(), tensor.dtype, tensor.shape});
}

// A tensor of the device that holds what fill_normal gives stream `stream`.
OwnedTensor tensor_of(Device& device, DType dtype, Shape shape, std::uint32_t stream) {
  const auto host = Device::cpu(1);
  const OwnedTensor values = random_tensor(*host, dtype, shape, stream);
  OwnedTensor tensor = device.memory().tensor(Purpose::workspace, dtype, shape);
  device.copy_from_host(tensor, values.view().data);
  return tensor;
}

std::vector<double> normals(DType dtype, Shape shape, std::uint32_t stream) {
  const auto host = Device::cpu(1);
  return testing::values_of(random_tensor(*host, dtype, shape, stream));
}

std::unique_ptr<Device> rank_device() {
  return Device::named(FILIGREE_TEST_DEVICE, 1);
}

TEST(VirtualRanks, AddInTheOrderOfTheRanksAndRoundOnce) {
  constexpr int kRanks = 4;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t count : {1, 3, 4, 5001}) {
      std::vector<float> expected(static_cast<std::size_t>(count), 0.0f);
      for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
        const std::vector<double> values = normals(dtype, {count}, rank);
        for (std::size_t i = 0; i < expected.size(); ++i)
          expected[i] = rank == 0 ? static_cast<float>(values[i]) : expected[i] + static_cast<float>(values[i]);
      }
      if (dtype == DType::bf16)
        for (float& value : expected) value = static_cast<float>(bf16(value));
      run_virtual_ranks(kRanks, [&](Communicator& communicator) {
        const auto device = rank_device();
        const auto stream = static_cast<std::uint32_t>(communicator.rank());
        const OwnedTensor array = tensor_of(*device, dtype, {count}, stream);
        const OwnedTensor other = tensor_of(*device, dtype, {count}, stream);
        const Tensor both[] = {array, other};
        communicator.all_reduce(*device, both).wait(*device);
        for (const Tensor& tensor : both) {
          const std::vector<double> sums = values_on_host(*device, tensor);
          for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_EQ(sums[i], expected[i]) << i;
        }
      });
    }
}

TEST(VirtualRanks, ScatteredSumsAndGatheredPartsAreThoseOfAllReduce) {
  constexpr int kRanks = 3;
  constexpr std::int64_t kPart = 700;
  for (const DType dtype : {DType::f32, DType::bf16})
    run_virtual_ranks(kRanks, [&](Communicator& communicator) {
      const auto device = rank_device();
      const auto stream = static_cast<std::uint32_t>(communicator.rank());
      const OwnedTensor reduced = tensor_of(*device, dtype, {kRanks * kPart}, stream);
      const OwnedTensor scattered = tensor_of(*device, dtype, {kRanks * kPart}, stream);
      communicator.all_reduce(*device, reduced).wait(*device);
      const Tensor own = scattered.view().slice(communicator.rank() * kPart, kPart);
      communicator.reduce_scatter(*device, own, scattered).wait(*device);
      communicator.all_gather(*device, scattered, own).wait(*device);
      EXPECT_EQ(values_on_host(*device, reduced), values_on_host(*device, scattered));
    });
}

TEST(VirtualRanks, BroadcastsEachTypeFromEachRank) {
  run_virtual_ranks(3, [](Communicator& communicator) {
    const auto device = rank_device();
    const std::vector<std::int32_t> mine = {communicator.rank(), 7, -communicator.rank()};
    for (int root = 0; root < 3; ++root) {
      const OwnedTensor array = device->memory().tensor(Purpose::workspace, DType::i32, {3});
      device->copy_from_host(array, mine.data());
      communicator.broadcast(*device, array, root).wait(*device);
      EXPECT_THAT(values_on_host(*device, array), ::testing::ElementsAre(root, 7, -root));
    }
  });
}

TEST(VirtualRanks, ExchangeValuesOfTheHost) {
  run_virtual_ranks(4, [](Communicator& communicator) {
    const int rank = communicator.rank();
    EXPECT_EQ(communicator.all_gather(std::string(static_cast<std::size_t>(rank), 'x')),
              (std::vector<std::string>{"", "x", "xx", "xxx"}));
    EXPECT_EQ(communicator.broadcast("from " + std::to_string(rank), 2), "from 2");
    EXPECT_EQ(communicator.sum(rank + 0.5), 8.0);
    EXPECT_TRUE(communicator.agree(5));
    EXPECT_FALSE(communicator.agree(rank == 3 ? 1 : 0));
    communicator.barrier();
  });
}

TEST(VirtualRanks, OneThatFailsEndsTheOthers) {
  std::atomic<int> lost = 0;
  const auto body = [&](Communicator& communicator) {
    if (communicator.rank() == 1) throw UserError("the reason");
    try {
      communicator.barrier();
    } catch (const RankLost&) {
      ++lost;
      throw;
    }
  };
  try {
    run_virtual_ranks(3, body);
    FAIL() << "nothing was thrown";
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(), "the reason");
  }
  EXPECT_EQ(lost, 2);
}

TEST(Communicator, CountsTheBytesOfARing) {
  run_virtual_ranks(4, [](Communicator& communicator) {
    const auto device = rank_device();
    const OwnedTensor array = device->memory().tensor(Purpose::workspace, DType::f32, {40});
    const Tensor part = array.view().slice(communicator.rank() * 10, 10);
    communicator.all_reduce(*device, array).wait(*device);
    EXPECT_EQ(communicator.traffic().payload, 160);
    EXPECT_EQ(communicator.traffic().wire, 2.0 * 3 / 4 * 160);
    communicator.reduce_scatter(*device, part, array).wait(*device);
    communicator.all_gather(*device, array, part).wait(*device);
    communicator.broadcast(*device, array, 0).wait(*device);
    EXPECT_EQ(communicator.traffic().calls, 4);
    EXPECT_EQ(communicator.traffic().payload, 4 * 160);
    EXPECT_EQ(communicator.traffic().wire, 5.0 * 3 / 4 * 160);
  });
}

TEST(Communicator, OneRankHasEverything) {
  SingleRank communicator;
  const auto device = rank_device();
  const OwnedTensor array = tensor_of(*device, DType::f32, {8}, 1);
  const OwnedTensor copy = device->memory().tensor(Purpose::workspace, DType::f32, {8});
  const std::vector<double> before = values_on_host(*device, array);
  communicator.all_reduce(*device, array).wait(*device);
  communicator.reduce_scatter(*device, copy, array).wait(*device);
  EXPECT_EQ(values_on_host(*device, array), before);
  EXPECT_EQ(values_on_host(*device, copy), before);
  EXPECT_EQ(communicator.sum(2.5), 2.5);
  EXPECT_EQ(communicator.traffic().wire, 0.0);
}

}  // namespace
}  // namespace filigree
