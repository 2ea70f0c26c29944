#include "kernels/random/random_fill.h"

#include "kernels/cuda_test.h"

namespace filigree::testing {
namespace {

class RandomFillCuda : public CudaTest {};

TEST_F(RandomFillCuda, AgreesWithTheProcessorToTheLastBit) {
  const Random random(11, RandomPurpose::test, 3);
  for (const std::int64_t count : {std::int64_t{1}, std::int64_t{1001}, std::int64_t{3} << 20}) {
    const OwnedTensor here = cpu().memory().tensor(Purpose::workspace, DType::f32, {count});
    const OwnedTensor there = gpu().memory().tensor(Purpose::workspace, DType::f32, {count});
    filigree::fill_normal(cpu(), here, random, 0.02f);
    filigree::fill_normal(gpu(), there, random, 0.02f);
    const auto want = values_of(here), got = values_of(on_cpu(there));
    std::int64_t different = 0;
    for (std::size_t i = 0; i < want.size(); ++i) {
      if (got[i] != want[i]) ++different;
      ASSERT_NEAR(got[i], want[i], std::abs(want[i]) * 0x1p-22) << i;
    }
    EXPECT_LE(different, count / 1000);
  }
}

}  // namespace
}  // namespace filigree::testing
