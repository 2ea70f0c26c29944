// Products of a few tokens with 2:4 weights on a GPU, which need neither metadata nor a plan.
#include "kernels/elementwise/elementwise.h"
#include "kernels/nm/nm_matmul.h"
#include "nm_cuda_test.h"

namespace filigree::testing {
namespace {

constexpr Pattern kPattern{2, 4};

class NmDecode : public NmCudaTest {
 protected:
  void check(std::int64_t tokens, std::int64_t inputs, std::int64_t outputs) {
    const std::string what =
        std::to_string(tokens) + " tokens, " + std::to_string(inputs) + " to " + std::to_string(outputs);
    const OwnedNm host(cpu(), DType::bf16, outputs, inputs, kPattern, 1);
    const GpuNm device = matrix_on_gpu(host.view);
    const OwnedTensor x = random_tensor(cpu(), DType::bf16, {tokens, inputs}, 2);
    const OwnedTensor y = random_tensor(cpu(), DType::bf16, {tokens, outputs}, 3);
    const OwnedTensor bias = random_tensor(cpu(), DType::f32, {outputs}, 4);
    const OwnedTensor gpu_x = on_gpu(x), gpu_bias = on_gpu(bias);
    const OwnedTensor gpu_y = gpu().memory().tensor(Purpose::workspace, DType::bf16, {tokens, outputs});
    NmMatmulArgs args{.y = y, .x = x, .weight = host.view};
    NmMatmulArgs gpu_args{.y = gpu_y, .x = gpu_x, .weight = device.view};
    ASSERT_TRUE(cuda::nm_matmul_serves(gpu(), gpu_args)) << what;
    for (const bool rest : {false, true}) {  // bias, scale and accumulation
      fill(cpu(), y, 1.0f);
      fill(gpu(), gpu_y, 1.0f);
      if (rest) {
        args.bias = bias;
        gpu_args.bias = gpu_bias;
        args.scale = gpu_args.scale = -0.75f;
        args.accumulate = gpu_args.accumulate = true;
      }
      nm_matmul(cpu(), args);
      nm_matmul(gpu(), gpu_args);
      expect_equal(gpu_y, y, inputs / 2 + 2, 1.0, what + (rest ? ", bias and accumulated" : ""));
    }
  }
};

TEST_F(NmDecode, EveryNumberOfTokensAgreesWithTheProcessor) {
  for (std::int64_t tokens = 1; tokens <= 16; ++tokens) check(tokens, 768, 100);
}

TEST_F(NmDecode, EveryWidthAgreesWithTheProcessor) {
  for (const std::int64_t tokens : {1, 5, 8, 13})
    for (const std::int64_t inputs : {8, 16, 24, 56, 64, 72, 136, 512, 520, 1600, 5128})
      for (const std::int64_t outputs : {1, 7, 16, 33}) check(tokens, inputs, outputs);
}

TEST_F(NmDecode, ManyRowsAgreeWithTheProcessor) {
  check(1, 128, 40001);
  check(4, 72, 40001);
  check(16, 128, 20001);
}

// More inputs than shared memory holds of so many tokens, the last ones half a step.
TEST_F(NmDecode, WideInputsComeInChunks) {
  check(16, 10304, 40);
  check(13, 5120, 300);
  check(4, 30720, 17);
  check(8, 20480, 1100);
  check(16, 40960, 300);
}

// Each product reads what the one before it wrote, and may begin before that one is done.
TEST_F(NmDecode, OverlappingProductsWaitForTheirInputs) {
  constexpr std::int64_t kWidth = 2048, kTokens = 4;
  std::vector<GpuNm> weights;
  for (std::uint32_t i = 0; i < 4; ++i)
    weights.push_back(matrix_on_gpu(OwnedNm(cpu(), DType::bf16, kWidth, kWidth, kPattern, i).view));
  const OwnedTensor first = random_tensor(cpu(), DType::bf16, {kTokens, kWidth}, 2);
  const auto chain = [&](bool apart) {
    const OwnedTensor a = on_gpu(first), b = on_gpu(first);
    for (int i = 0; i < 40; ++i) {
      nm_matmul(gpu(), {.y = i % 2 == 0 ? b : a,
                        .x = i % 2 == 0 ? a : b,
                        .weight = weights[static_cast<std::size_t>(i % 4)].view,
                        .scale = 1.0f / 20.0f});
      if (apart) gpu().synchronize();
    }
    return on_cpu(a);
  };
  const OwnedTensor expected = chain(true);
  EXPECT_NE(values_of(expected), std::vector<double>(kTokens * kWidth, 0.0));
  for (int repeat = 0; repeat < 10; ++repeat) {
    ASSERT_EQ(values_of(chain(false)), values_of(expected));
    const SettledWeights settled(gpu());
    ASSERT_EQ(values_of(chain(false)), values_of(expected)) << "weights read ahead";
  }
}

// Every mask, in every place: weights of 1, so that sums say which inputs were taken.
TEST_F(NmDecode, EveryPatternTakesItsOwnInputs) {
  constexpr std::uint32_t kGroups[] = {0b0011, 0b0101, 0b1001, 0b0110, 0b1010, 0b1100};
  const std::int64_t inputs = 64, outputs = 36;
  const OwnedNm host(cpu(), DType::bf16, outputs, inputs, kPattern, 1);
  for (std::int64_t row = 0; row < outputs; ++row)
    for (std::int64_t byte = 0; byte < inputs / 8; ++byte)
      host.mask.view().as<std::uint8_t>()[row * inputs / 8 + byte] =
          static_cast<std::uint8_t>(kGroups[row % 6] | kGroups[(row / 6 + byte) % 6] << 4);
  for (std::int64_t i = 0; i < host.values.view().count(); ++i) store(host.values, i, i % 2 == 0 ? 1.0 : -1.0);
  const OwnedTensor x = cpu().memory().tensor(Purpose::workspace, DType::bf16, {1, inputs});
  for (std::int64_t i = 0; i < inputs; ++i) store(x, i, static_cast<double>(i * i % 101));
  const OwnedTensor y = cpu().memory().tensor(Purpose::workspace, DType::bf16, {1, outputs});
  const GpuNm device = matrix_on_gpu(host.view);
  const OwnedTensor gpu_x = on_gpu(x), gpu_y = on_gpu(y);
  nm_matmul(cpu(), {.y = y, .x = x, .weight = host.view});
  nm_matmul(gpu(), {.y = gpu_y, .x = gpu_x, .weight = device.view});
  EXPECT_EQ(values_of(on_cpu(gpu_y)), values_of(y)) << "whole numbers, summed exactly";
}

TEST_F(NmDecode, GivesTheSameBitsAgain) {
  const OwnedNm host(cpu(), DType::bf16, 333, 2048, kPattern, 1);
  const GpuNm device = matrix_on_gpu(host.view);
  const OwnedTensor x = on_gpu(random_tensor(cpu(), DType::bf16, {3, 2048}, 2));
  const OwnedTensor y = gpu().memory().tensor(Purpose::workspace, DType::bf16, {3, 333});
  nm_matmul(gpu(), {.y = y, .x = x, .weight = device.view});
  const OwnedTensor first = on_cpu(y);
  for (int repeat = 0; repeat < 10; ++repeat) {
    fill(gpu(), y, 0.0f);
    nm_matmul(gpu(), {.y = y, .x = x, .weight = device.view});
    ASSERT_TRUE(same(y, first));
  }
}

TEST_F(NmDecode, OtherProductsAreNotServed) {
  const auto serves = [&](DType dtype, std::int64_t tokens, std::int64_t inputs, Pattern pattern) {
    const OwnedNm host(cpu(), dtype, 16, inputs, pattern, 1);
    const GpuNm device = matrix_on_gpu(host.view);
    const OwnedTensor x = on_gpu(random_tensor(cpu(), dtype, {tokens, inputs}, 2));
    const OwnedTensor y = gpu().memory().tensor(Purpose::workspace, dtype, {tokens, 16});
    return cuda::nm_matmul_serves(gpu(), {.y = y, .x = x, .weight = device.view});
  };
  EXPECT_TRUE(serves(DType::bf16, 16, 64, kPattern));
  EXPECT_FALSE(serves(DType::bf16, 17, 64, kPattern));
  EXPECT_FALSE(serves(DType::bf16, 4, 60, kPattern));
  EXPECT_FALSE(serves(DType::bf16, 4, 64, {2, 8}));
  EXPECT_FALSE(serves(DType::f32, 4, 64, kPattern));
}

}  // namespace
}  // namespace filigree::testing
