// Started by mpirun: every rank runs every test, in the same order.
#include "comm/communicator.h"
#include "comm/launch.h"
#include "comm/mpi_communicator.h"
#include "support.h"

namespace filigree {
namespace {

std::unique_ptr<Communicator> communicator;

float value_of(int rank, std::int64_t index) {
  return static_cast<float>((index * 37 + rank * 11) % 64);  // whole numbers: sums are exact in both types
}

OwnedTensor own_array(Device& device, DType dtype, std::int64_t count) {
  OwnedTensor array = device.memory().tensor(Purpose::workspace, dtype, {count});
  for (std::int64_t i = 0; i < count; ++i) testing::store(array, i, value_of(communicator->rank(), i));
  return array;
}

double sum_of(std::int64_t index) {
  double sum = 0.0;
  for (int rank = 0; rank < communicator->size(); ++rank) sum += value_of(rank, index);
  return sum;
}

TEST(Mpi, AddsArraysOfAnyLength) {
  const auto device = Device::cpu(1);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t count : {1, 7, 40000, 300001}) {
      const OwnedTensor a = own_array(*device, dtype, count), b = own_array(*device, dtype, count);
      const Tensor both[] = {a, b};
      Pending first = communicator->all_reduce(*device, both);
      const OwnedTensor c = own_array(*device, dtype, count);
      communicator->all_reduce(*device, c).wait(*device);
      first.wait(*device);
      for (const Tensor& array : {a.view(), b.view(), c.view()}) {
        const std::vector<double> sums = testing::values_of(array);
        for (std::int64_t i = 0; i < count; ++i) ASSERT_EQ(sums[static_cast<std::size_t>(i)], sum_of(i)) << i;
      }
    }
}

TEST(Mpi, ScattersGathersAndBroadcasts) {
  const auto device = Device::cpu(1);
  const std::int64_t part = 1001, count = part * communicator->size();
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const OwnedTensor array = own_array(*device, dtype, count);
    const Tensor own = array.view().slice(communicator->rank() * part, part);
    communicator->reduce_scatter(*device, own, array).wait(*device);
    communicator->all_gather(*device, array, own).wait(*device);
    const std::vector<double> sums = testing::values_of(array);
    for (std::int64_t i = 0; i < count; ++i) ASSERT_EQ(sums[static_cast<std::size_t>(i)], sum_of(i)) << i;
  }
  const OwnedTensor bytes = device->memory().tensor(Purpose::workspace, DType::u8, {5});
  for (int i = 0; i < 5; ++i) bytes.view().as<std::uint8_t>()[i] = static_cast<std::uint8_t>(communicator->rank() + i);
  communicator->broadcast(*device, bytes, 1).wait(*device);
  EXPECT_EQ(testing::values_of(bytes), (std::vector<double>{1, 2, 3, 4, 5}));
}

TEST(Mpi, ExchangesValuesOfTheHost) {
  for (const std::size_t length : {0u, 56u, 57u, 100000u}) {
    const auto text = [&](int rank) {
      return std::string(length * static_cast<std::size_t>(rank), static_cast<char>('a' + rank));
    };
    const std::vector<std::string> all = communicator->all_gather(text(communicator->rank()));
    ASSERT_EQ(all.size(), static_cast<std::size_t>(communicator->size()));
    for (int rank = 0; rank < communicator->size(); ++rank) EXPECT_EQ(all[static_cast<std::size_t>(rank)], text(rank));
  }
  EXPECT_EQ(communicator->sum(1.5), 1.5 * communicator->size());
  EXPECT_TRUE(communicator->agree(7));
  EXPECT_FALSE(communicator->agree(static_cast<std::uint64_t>(communicator->rank())));
}

}  // namespace
}  // namespace filigree

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  const filigree::Launch launch = filigree::launch_from_environment();
  filigree::communicator = std::make_unique<filigree::MpiCommunicator>(launch.size, std::chrono::seconds(60));
  const int result = RUN_ALL_TESTS();
  filigree::communicator.reset();
  return result;
}
