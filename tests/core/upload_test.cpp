#include "core/upload.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace filigree::testing {
namespace {

// Two in turn, the host as far ahead as it may be: each piece of work sees the values of its own round, although the
// next ones are written and sent while it runs.
TEST(Upload, EveryRoundIsReadBeforeTheNextOverwritesIt) {
  constexpr std::int64_t kCount = 1 << 20;
  constexpr int kRounds = 12;
  const auto device = Device::named(FILIGREE_TEST_DEVICE);
  Upload even(*device, Purpose::data, DType::i32, {kCount}), odd(*device, Purpose::data, DType::i32, {kCount});
  std::vector<OwnedTensor> seen;
  for (int round = 0; round < kRounds; ++round)
    seen.push_back(device->memory().tensor(Purpose::data, DType::i32, {kCount}));
  const OwnedTensor detour = device->memory().tensor(Purpose::data, DType::i32, {kCount});
  for (int round = 0; round < kRounds; ++round) {
    Upload& upload = round % 2 == 0 ? even : odd;
    std::fill_n(static_cast<std::int32_t*>(upload.host()), kCount, round + 1);
    upload.send();
    const Tensor& received = upload.receive();
    for (int copies = 0; copies < 50; ++copies) device->copy(detour, received);  // work that takes its time
    device->copy(seen[static_cast<std::size_t>(round)], detour);
    upload.release();
  }
  std::vector<std::int32_t> read(kCount);
  for (int round = 0; round < kRounds; ++round) {
    device->copy_to_host(read.data(), seen[static_cast<std::size_t>(round)]);
    EXPECT_EQ(std::count(read.begin(), read.end(), round + 1), kCount) << round;
  }
}

}  // namespace
}  // namespace filigree::testing
