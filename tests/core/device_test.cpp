#include "core/device.h"

#include <gmock/gmock.h>

#include "support.h"

namespace filigree::testing {
namespace {

TEST(Device, AutoTakesAGpuWhereOneCanBeUsedAndCudaSaysWhyNot) {
  const std::string reason = cuda::unusable();
  EXPECT_EQ(Device::named("auto")->is_cuda(), reason.empty());
  EXPECT_FALSE(Device::named("cpu")->is_cuda());
  if (reason.empty()) return;
  try {
    Device::named("cuda");
    FAIL() << "no error";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), ::testing::AllOf(::testing::HasSubstr(reason), ::testing::HasSubstr("run.device")));
  }
}

TEST(Device, CopiesBetweenItsTensorsAndTheHost) {
  const auto device = Device::named("auto");
  const OwnedTensor a = device->memory().tensor(Purpose::data, DType::f32, {5});
  const OwnedTensor b = device->memory().tensor(Purpose::data, DType::f32, {5});
  const std::vector<float> values = {1.0f, 2.0f, 3.0f, 4.0f, 5.0f};
  std::vector<float> read(5);
  device->copy_to_host(read.data(), a);
  EXPECT_THAT(read, ::testing::Each(0.0f)) << "new memory is zero";
  device->copy_from_host(a, values.data());
  device->copy(b, a);
  device->copy_to_host(read.data(), b);
  EXPECT_EQ(read, values);
  EXPECT_THROW(device->copy(b.view().slice(0, 2), a), Error);
}

}  // namespace
}  // namespace filigree::testing
