#include "core/work_graph.h"

#include <gmock/gmock.h>

#include <vector>

namespace filigree::testing {
namespace {

class WorkGraphTest : public ::testing::Test {
 protected:
  std::unique_ptr<Device> device_ = Device::named(FILIGREE_TEST_DEVICE);
  OwnedTensor from_ = device_->memory().tensor(Purpose::data, DType::i32, {4});
  OwnedTensor to_ = device_->memory().tensor(Purpose::data, DType::i32, {4});

  void write(std::vector<std::int32_t> values) { device_->copy_from_host(from_, values.data()); }
  std::vector<std::int32_t> read() {
    std::vector<std::int32_t> values(4);
    device_->copy_to_host(values.data(), to_);
    return values;
  }
};

TEST_F(WorkGraphTest, DoesItsWorkAtEachLaunchAndNotWhenItIsRecorded) {
  write({1, 2, 3, 4});
  const WorkGraph graph(*device_, [&] { device_->copy(to_, from_); });
  EXPECT_THAT(read(), ::testing::Each(0));
  graph.launch();
  EXPECT_THAT(read(), ::testing::ElementsAre(1, 2, 3, 4));
  write({5, 6, 7, 8});
  graph.launch();
  EXPECT_THAT(read(), ::testing::ElementsAre(5, 6, 7, 8));
}

TEST_F(WorkGraphTest, RefusesWhatCannotBeRecordedAndLeavesTheDeviceAsItWas) {
  std::vector<std::int32_t> values(4);
  const std::function<void()> works[] = {
      [&] { device_->synchronize(); },
      [&] { device_->copy_to_host(values.data(), to_); },
      [&] { device_->copy_from_host(to_, values.data()); },
      [&] { device_->scratch(Scratch::layer, 1 << 20); },
      [&] { device_->memory().tensor(Purpose::data, DType::i32, {4}); },
      [&] { WorkGraph(*device_, [] {}); },
      [&] { throw Error("of its own"); },
  };
  for (const auto& work : works) {
    EXPECT_THROW(WorkGraph(*device_,
                           [&] {
                             device_->copy(to_, from_);
                             work();
                           }),
                 Error);
    write({1, 2, 3, 4});
    device_->copy(to_, from_);
    EXPECT_THAT(read(), ::testing::ElementsAre(1, 2, 3, 4));
    EXPECT_NO_THROW(WorkGraph(*device_, [&] { device_->copy(to_, from_); }).launch());
  }
}

TEST_F(WorkGraphTest, ScratchMemoryCountsItsMoves) {
  const std::int64_t before = device_->scratch_moves();
  device_->scratch(Scratch::layer, 100);
  device_->scratch(Scratch::layer, 50);
  EXPECT_EQ(device_->scratch_moves(), before + 1);
  device_->scratch(Scratch::caller, 50);
  EXPECT_EQ(device_->scratch_moves(), before + 2);
}

}  // namespace
}  // namespace filigree::testing
