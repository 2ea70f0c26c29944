#include "kernels/matmul/matmul_choices.h"

#include <gmock/gmock.h>

#include "kernels/cuda_test.h"

namespace filigree::testing {
namespace {

using ::testing::HasSubstr;

// A layer's products, one with each form of a bias and of an epilogue that cuBLASLt may be asked for.
class MatmulChoicesCuda : public CudaTest {
 protected:
  static constexpr std::int64_t kTokens = 512, kInputs = 768, kOutputs = 1024;
  // The bytes of all results, and how many products were timed.
  struct Results {
    std::vector<std::vector<double>> values;
    std::int64_t searches = 0;
  };
  Results run(Device& device) {
    const std::int64_t before = matmul_searches(device);
    const auto tensor = [&](DType dtype, Shape shape, std::uint32_t stream) {
      const OwnedTensor host = random_tensor(cpu(), dtype, shape, stream, 0.1);
      OwnedTensor copy = device.memory().tensor(Purpose::workspace, dtype, shape);
      device.copy_from_host(copy, host.view().data);
      return copy;
    };
    const OwnedTensor x = tensor(DType::bf16, {kTokens, kInputs}, 1),
                      weight = tensor(DType::bf16, {kOutputs, kInputs}, 2);
    const OwnedTensor bias = tensor(DType::f32, {kOutputs}, 3), dy = tensor(DType::bf16, {kTokens, kOutputs}, 4);
    const OwnedTensor y = tensor(DType::bf16, {kTokens, kOutputs}, 5), z = tensor(DType::bf16, {kTokens, kOutputs}, 6);
    const OwnedTensor dx = tensor(DType::bf16, {kTokens, kInputs}, 7), dz = tensor(DType::bf16, {kTokens, kInputs}, 8);
    const OwnedTensor gradient = tensor(DType::f32, {kOutputs, kInputs}, 9);
    Results results;
    const auto keep = [&](const Tensor& result) {
      const OwnedTensor host = cpu().memory().tensor(Purpose::workspace, result.dtype, result.shape);
      device.copy_to_host(host.view().data, result);
      results.values.push_back(values_of(host));
    };
    matmul(device, {.y = y, .a = x, .b = weight, .bias = bias, .transpose_b = true});
    keep(y);
    matmul(device, {.y = y,
                    .a = x,
                    .b = weight,
                    .bias = bias,
                    .transpose_b = true,
                    .epilogue = Epilogue::gelu_forward,
                    .pre_activation = z});
    keep(y);
    keep(z);
    matmul(device,
           {.y = y, .a = x, .b = weight, .bias = bias, .transpose_b = true, .epilogue = Epilogue::relu_forward});
    keep(y);
    matmul(device, {.y = dx, .a = dy, .b = weight});
    keep(dx);
    matmul(device, {.y = dz, .a = dy, .b = weight, .epilogue = Epilogue::gelu_backward, .pre_activation = x});
    keep(dz);
    matmul(device, {.y = gradient, .a = dy, .b = x, .transpose_a = true, .accumulate = true});
    keep(gradient);
    results.searches = matmul_searches(device) - before;
    return results;
  }
};

TEST_F(MatmulChoicesCuda, ASecondDeviceTakesThemOverAndTimesNothing) {
  const Results first = run(gpu());
  EXPECT_GT(first.searches, 0);
  const MatmulChoices choices = matmul_choices(gpu());
  const auto other = Device::cuda();
  EXPECT_EQ(restore_matmul_choices(*other, choices), "");
  EXPECT_EQ(matmul_choices(*other).entries, choices.entries) << "before their use";
  const Results second = run(*other);
  EXPECT_EQ(second.searches, 0);
  EXPECT_EQ(second.values, first.values);
  EXPECT_EQ(matmul_choices(*other).entries, choices.entries) << "after it";
  EXPECT_EQ(matmul_choices(*other).made_by, choices.made_by);
}

TEST_F(MatmulChoicesCuda, OneThatIsDamagedIsMadeAgain) {
  run(gpu());
  MatmulChoices choices = matmul_choices(gpu());
  std::string& text = choices.entries.begin()->second;
  text[0] = 'x';
  const auto other = Device::cuda();
  EXPECT_THAT(restore_matmul_choices(*other, choices),
              HasSubstr("1 of " + std::to_string(choices.entries.size()) + " stored algorithms"));
  EXPECT_EQ(run(*other).searches, 1);
}

// Well written, but no algorithm.
TEST_F(MatmulChoicesCuda, OneThatTheLibraryRefusesIsMadeAgain) {
  const Results first = run(gpu());
  MatmulChoices choices = matmul_choices(gpu());
  for (auto& [shape, text] : choices.entries) {
    MatmulChoice choice = *matmul_choice_of(text);
    choice.algorithm.fill(~std::uint64_t{0});
    text = to_text(choice);
  }
  const auto other = Device::cuda();
  EXPECT_EQ(restore_matmul_choices(*other, choices), "");
  const Results second = run(*other);
  EXPECT_GT(second.searches, 0);
  ASSERT_EQ(second.values.size(), first.values.size());
}

TEST_F(MatmulChoicesCuda, ThoseOfAnotherLibraryAreLeft) {
  run(gpu());
  MatmulChoices choices = matmul_choices(gpu());
  choices.made_by = "cuBLASLt 1";
  const auto other = Device::cuda();
  EXPECT_THAT(restore_matmul_choices(*other, choices), HasSubstr("were chosen by cuBLASLt 1"));
  EXPECT_TRUE(matmul_choices(*other).entries.empty());
  EXPECT_GT(run(*other).searches, 0);
}

TEST_F(MatmulChoicesCuda, ADeterministicDeviceHasNone) {
  gpu().set_deterministic(true);
  EXPECT_EQ(run(gpu()).searches, 0);
  EXPECT_TRUE(matmul_choices(gpu()).entries.empty());
}

}  // namespace
}  // namespace filigree::testing
