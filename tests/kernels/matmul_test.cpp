#include "kernels/matmul/matmul.h"

#include <cmath>
#include <numbers>

#include "kernels/kernel_test.h"
#include "kernels/matmul/matmul_onednn.h"

namespace filigree::testing {
namespace {

struct Case {
  std::int64_t rows, columns, depth;
  DType operands, result;
  bool transpose_a, transpose_b, accumulate, bias;
  float scale;
};

std::string name(const Case& c) {
  return std::to_string(c.rows) + "x" + std::to_string(c.columns) + "x" + std::to_string(c.depth) + " " +
         std::string(name_of(c.operands)) + " to " + std::string(name_of(c.result)) + (c.transpose_a ? " aT" : "") +
         (c.transpose_b ? " bT" : "") + (c.accumulate ? " +" : "") + (c.bias ? " bias" : "");
}

using Product = std::function<void(Device&, const MatmulArgs&)>;

void run(Device& device, const Case& c, const Product& product = matmul) {
  const OwnedTensor a =
      random_tensor(device, c.operands, c.transpose_a ? Shape{c.depth, c.rows} : Shape{c.rows, c.depth}, 1);
  const OwnedTensor b =
      random_tensor(device, c.operands, c.transpose_b ? Shape{c.columns, c.depth} : Shape{c.depth, c.columns}, 2);
  const OwnedTensor bias = random_tensor(device, DType::f32, {c.columns}, 3);
  const OwnedTensor y = random_tensor(device, c.result, {c.rows, c.columns}, 4);
  const std::vector<double> av = values_of(a), bv = values_of(b), biases = values_of(bias), before = values_of(y);
  product(device, {.y = y,
                   .a = a,
                   .b = b,
                   .bias = c.bias ? bias.view() : Tensor{},
                   .transpose_a = c.transpose_a,
                   .transpose_b = c.transpose_b,
                   .accumulate = c.accumulate,
                   .scale = c.scale});
  std::vector<double> expected(before.size());
  for (std::int64_t i = 0; i < c.rows; ++i)
    for (std::int64_t j = 0; j < c.columns; ++j) {
      double sum = 0.0;
      for (std::int64_t k = 0; k < c.depth; ++k)
        sum += av[static_cast<std::size_t>(c.transpose_a ? k * c.rows + i : i * c.depth + k)] *
               bv[static_cast<std::size_t>(c.transpose_b ? j * c.depth + k : k * c.columns + j)];
      const auto at = static_cast<std::size_t>(i * c.columns + j);
      expected[at] =
          c.scale * sum + (c.bias ? biases[static_cast<std::size_t>(j)] : 0.0) + (c.accumulate ? before[at] : 0.0);
    }
  expect_close(y, expected, c.depth + 2, 1.0, name(c));
}

TEST(Matmul, MatchesReferenceForAllTypesAndOptions) {
  const auto device = Device::cpu();
  const std::vector<std::array<std::int64_t, 3>> shapes = {{1, 1, 1},   {3, 5, 7},   {1, 33, 64},   {2, 70, 130},
                                                           {8, 17, 96}, {9, 32, 31}, {65, 67, 129}, {4, 6, 0},
                                                           {0, 3, 2},   {2, 0, 3}};
  for (const auto& [rows, columns, depth] : shapes)
    for (const auto& [operands, result] :
         {std::pair{DType::f32, DType::f32}, {DType::bf16, DType::bf16}, {DType::bf16, DType::f32}})
      for (int options = 0; options < 16; ++options)
        for (const float scale : {1.0f, 0.5f})
          run(*device, {rows, columns, depth, operands, result, (options & 1) != 0, (options & 2) != 0,
                        (options & 4) != 0, (options & 8) != 0, scale});
}

TEST(Matmul, MatchesReferenceWithLargeExtents) {
  const auto device = Device::cpu();
  for (const auto& [operands, result] : {std::pair{DType::f32, DType::f32}, {DType::bf16, DType::bf16}})
    for (int options = 0; options < 16; options += 5)
      for (const auto& [rows, columns, depth] :
           {std::array<std::int64_t, 3>{530, 70, 45}, {33, 801, 300}, {290, 33, 515}})
        run(*device, {rows, columns, depth, operands, result, (options & 1) != 0, (options & 2) != 0,
                      (options & 4) != 0, (options & 8) != 0, 1.0f});
}

// oneDNN's bf16 product and the one through fp32, whichever path this processor would take.
TEST(Matmul, EveryLibraryPathMatchesReference) {
  const auto device = Device::cpu();
  for (const DType result : {DType::bf16, DType::f32})
    for (int options = 0; options < 16; ++options) {
      const Case c = {40,
                      35,
                      50,
                      DType::bf16,
                      result,
                      (options & 1) != 0,
                      (options & 2) != 0,
                      (options & 4) != 0,
                      (options & 8) != 0,
                      0.5f};
      run(*device, c, onednn_matmul_widened);
      if (onednn_has_bf16()) run(*device, c, onednn_matmul);
    }
}

TEST(Matmul, IsIndependentOfTheThreadCount) {
  const auto device = Device::cpu();
  const OwnedTensor a = random_tensor(*device, DType::bf16, {300, 700}, 1);
  const OwnedTensor b = random_tensor(*device, DType::bf16, {300, 900}, 2);
  const OwnedTensor y = random_tensor(*device, DType::f32, {700, 900}, 3);
  expect_same_for_any_thread_count(y, [&] { matmul(*device, {.y = y, .a = a, .b = b, .transpose_a = true}); });
}

TEST(Matmul, AllocatesNothingForAKnownShape) {
  const auto device = Device::cpu();
  const OwnedTensor a = random_tensor(*device, DType::bf16, {64, 96}, 1);
  const OwnedTensor b = random_tensor(*device, DType::bf16, {32, 96}, 2);
  const OwnedTensor y = random_tensor(*device, DType::f32, {64, 32}, 3);
  const MatmulArgs args = {.y = y, .a = a, .b = b, .transpose_b = true};
  matmul(*device, args);
  const std::int64_t before = device->memory().allocations();
  const std::vector<double> first = values_of(y);
  matmul(*device, args);
  EXPECT_EQ(device->memory().allocations(), before);
  EXPECT_EQ(values_of(y), first);
}

double gelu(double x) {
  const double u = std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x);
  return x / 2 * (1 + std::tanh(u));
}

// The plain product, which other tests compare with a reference, followed by a reference of gelu or its derivative.
void run_epilogues(Device& device, const MatmulArgs& plain, const std::string& what) {
  const OwnedTensor y = random_tensor(device, plain.y.dtype, plain.y.shape, 5);
  const OwnedTensor z = random_tensor(device, plain.y.dtype, plain.y.shape, 6);
  matmul(device, plain);
  const std::vector<double> p = values_of(plain.y);

  MatmulArgs args = plain;
  args.y = y;
  args.pre_activation = z;
  std::vector<double> expected(p.size());
  const auto magnitude = [&](std::size_t i) { return 2.0 * std::max(std::abs(expected[i]), std::abs(p[i])); };
  if (args.bias.empty()) {
    std::vector<double> before = values_of(z);
    for (std::size_t i = 0; i < p.size(); ++i)
      expected[i] = p[i] * derivative(before, i, [&] { return gelu(before[i]); });
    args.epilogue = Epilogue::gelu_backward;
    matmul(device, args);
    expect_close(y, expected, 1, magnitude, "backward " + what);
    EXPECT_EQ(values_of(z), before) << what;
  }
  for (std::size_t i = 0; i < p.size(); ++i) expected[i] = gelu(p[i]);
  args.epilogue = Epilogue::gelu_forward;
  matmul(device, args);
  expect_close(y, expected, 1, magnitude, "forward " + what);
  EXPECT_EQ(values_of(z), p) << what;
  for (std::size_t i = 0; i < p.size(); ++i) expected[i] = std::max(p[i], 0.0);
  args.epilogue = Epilogue::relu_forward;
  args.pre_activation = {};
  matmul(device, args);
  EXPECT_EQ(values_of(y), expected) << what;
}

TEST(Matmul, AppliesItsEpilogues) {
  const auto device = Device::cpu();
  const std::vector<std::array<std::int64_t, 3>> shapes = {{1, 1, 1},     {3, 5, 7}, {8, 17, 96},
                                                           {65, 67, 129}, {4, 6, 0}, {0, 3, 2}};
  for (const auto& [rows, columns, depth] : shapes)
    for (const auto& [operands, result] :
         {std::pair{DType::f32, DType::f32}, {DType::bf16, DType::bf16}, {DType::bf16, DType::f32}})
      for (const bool with_bias : {false, true}) {
        const OwnedTensor y = random_tensor(*device, result, {rows, columns}, 4);
        const OwnedTensor a = random_tensor(*device, operands, {rows, depth}, 1);
        const OwnedTensor b = random_tensor(*device, operands, {columns, depth}, 2);
        const OwnedTensor bias = random_tensor(*device, DType::f32, {columns}, 3);
        run_epilogues(
            *device,
            {.y = y, .a = a, .b = b, .bias = with_bias ? bias.view() : Tensor{}, .transpose_b = true, .scale = 0.25f},
            std::to_string(rows) + "x" + std::to_string(columns) + "x" + std::to_string(depth) + " " +
                std::string(name_of(result)) + (with_bias ? " bias" : ""));
      }
}

TEST(Matmul, RejectsEpiloguesThatDoNotFit) {
  const auto device = Device::cpu();
  const OwnedTensor a = random_tensor(*device, DType::f32, {4, 6}, 1),
                    b = random_tensor(*device, DType::f32, {6, 3}, 2);
  const OwnedTensor y = random_tensor(*device, DType::f32, {4, 3}, 3),
                    z = random_tensor(*device, DType::f32, {4, 3}, 4);
  const OwnedTensor half = random_tensor(*device, DType::bf16, {4, 3}, 5);
  const OwnedTensor bias = random_tensor(*device, DType::f32, {3}, 6);
  const auto rejects = [&](Epilogue epilogue, const Tensor& pre_activation, bool accumulate, const Tensor& added) {
    const MatmulArgs args = {.y = y,
                             .a = a,
                             .b = b,
                             .bias = added,
                             .accumulate = accumulate,
                             .epilogue = epilogue,
                             .pre_activation = pre_activation};
    EXPECT_THROW(matmul(*device, args), Error);
  };
  for (const Epilogue epilogue : {Epilogue::gelu_forward, Epilogue::gelu_backward}) {
    rejects(epilogue, {}, false, {});
    rejects(epilogue, y, false, {});
    rejects(epilogue, half, false, {});
    rejects(epilogue, z.view().reshaped({3, 4}), false, {});
    rejects(epilogue, z, true, {});
  }
  rejects(Epilogue::gelu_backward, z, false, bias);
  rejects(Epilogue::relu_forward, {}, true, {});
}

TEST(Matmul, RejectsOperandsThatDoNotFit) {
  const auto device = Device::cpu();
  const OwnedTensor a = random_tensor(*device, DType::f32, {4, 6}, 1);
  const OwnedTensor b = random_tensor(*device, DType::f32, {6, 3}, 2);
  const OwnedTensor half = random_tensor(*device, DType::bf16, {4, 3}, 2);
  const OwnedTensor y = random_tensor(*device, DType::f32, {4, 3}, 3);
  EXPECT_THROW(matmul(*device, {.y = y, .a = a, .b = b, .transpose_b = true}), Error);
  EXPECT_THROW(matmul(*device, {.y = y, .a = b, .b = b}), Error);
  EXPECT_THROW(matmul(*device, {.y = half, .a = a, .b = b}), Error);
  EXPECT_NO_THROW(matmul(*device, {.y = y, .a = a, .b = b}));
}

}  // namespace
}  // namespace filigree::testing
