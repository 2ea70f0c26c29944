#include <cmath>
#include <cstring>

#include "kernels/cuda_test.h"
#include "kernels/matmul/matmul.h"

namespace filigree::testing {
namespace {

struct Case {
  std::int64_t rows, columns, depth;
  DType operands, result;
  bool transpose_a = false, transpose_b = false, accumulate = false, bias = false;
  float scale = 1.0f;
};

std::string name(const Case& c) {
  return std::to_string(c.rows) + "x" + std::to_string(c.columns) + "x" + std::to_string(c.depth) + " " +
         std::string(name_of(c.operands)) + " to " + std::string(name_of(c.result)) + (c.transpose_a ? " aT" : "") +
         (c.transpose_b ? " bT" : "") + (c.accumulate ? " +" : "") + (c.bias ? " bias" : "") + " scale " +
         std::to_string(c.scale);
}

constexpr std::pair<DType, DType> kTypes[] = {
    {DType::f32, DType::f32}, {DType::bf16, DType::bf16}, {DType::bf16, DType::f32}};

// Option bits 0 to 3: transpose_a, transpose_b, accumulate, bias.
Case with_options(std::int64_t rows, std::int64_t columns, std::int64_t depth, std::pair<DType, DType> types,
                  int options, float scale) {
  return {rows,
          columns,
          depth,
          types.first,
          types.second,
          (options & 1) != 0,
          (options & 2) != 0,
          (options & 4) != 0,
          (options & 8) != 0,
          scale};
}

class MatmulCuda : public CudaTest {
 protected:
  struct Tensors {
    OwnedTensor y, a, b, bias;
    MatmulArgs args(const Case& c) const {
      return {.y = y,
              .a = a,
              .b = b,
              .bias = c.bias ? bias.view() : Tensor{},
              .transpose_a = c.transpose_a,
              .transpose_b = c.transpose_b,
              .accumulate = c.accumulate,
              .scale = c.scale};
    }
  };
  Tensors on_host(const Case& c) {
    return {random_tensor(cpu(), c.result, {c.rows, c.columns}, 4),
            random_tensor(cpu(), c.operands, c.transpose_a ? Shape{c.depth, c.rows} : Shape{c.rows, c.depth}, 1),
            random_tensor(cpu(), c.operands, c.transpose_b ? Shape{c.columns, c.depth} : Shape{c.depth, c.columns}, 2),
            random_tensor(cpu(), DType::f32, {c.columns}, 3)};
  }
  Tensors copy(const Tensors& host) { return {on_gpu(host.y), on_gpu(host.a), on_gpu(host.b), on_gpu(host.bias)}; }

  // Twice: the first call of a shape may search for its algorithm, the second runs it. Same bits, nothing allocated.
  void run(const Case& c) {
    const Tensors host = on_host(c), first = copy(host), second = copy(host);
    matmul(cpu(), host.args(c));
    matmul(gpu(), first.args(c));
    expect_equal(first.y, host.y, c.depth + 2, 1.0, name(c));
    const std::int64_t allocations = gpu().memory().allocations();
    matmul(gpu(), second.args(c));
    EXPECT_EQ(gpu().memory().allocations(), allocations) << name(c);
    EXPECT_EQ(values_of(on_cpu(second.y)), values_of(on_cpu(first.y))) << name(c);
  }
};

// `a` as columns 128 to 320 of a wider matrix, whose other columns must not matter.
TEST_F(MatmulCuda, AStridedOperand) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const bool transpose : {false, true}) {
      const std::int64_t depth = transpose ? 96 : 192, rows = transpose ? 192 : 96;
      const OwnedTensor wide = random_tensor(cpu(), dtype, {96, 448}, 1);
      const OwnedTensor part = cpu().memory().tensor(Purpose::workspace, dtype, {96, 192});
      const std::size_t element = size_of(dtype);
      for (std::size_t row = 0; row < 96; ++row)
        std::memcpy(static_cast<std::byte*>(part.view().data) + row * 192 * element,
                    static_cast<const std::byte*>(wide.view().data) + (row * 448 + 128) * element, 192 * element);
      const OwnedTensor b = random_tensor(cpu(), dtype, {depth, 80}, 2);
      const OwnedTensor y = random_tensor(cpu(), DType::f32, {rows, 80}, 3);
      const OwnedTensor gpu_wide = on_gpu(wide), gpu_b = on_gpu(b), gpu_y = on_gpu(y);
      matmul(cpu(), {.y = y, .a = part, .b = b, .transpose_a = transpose});
      const Tensor strided{static_cast<std::byte*>(gpu_wide.view().data) + 128 * element, dtype, {96, 192}};
      matmul(gpu(), {.y = gpu_y, .a = strided, .b = gpu_b, .transpose_a = transpose, .a_stride = 448});
      expect_equal(gpu_y, y, depth, 1.0, transpose ? "strided, transposed" : "strided");
    }
}

TEST_F(MatmulCuda, MatchesTheProcessorForAllTypesAndOptions) {
  gpu().set_deterministic(true);  // no search: there are 672 products
  for (const auto& [rows, columns, depth] : std::vector<std::array<std::int64_t, 3>>{
           {1, 1, 1}, {3, 5, 7}, {1, 33, 64}, {8, 1, 96}, {16, 8, 1}, {65, 67, 129}, {64, 72, 136}})
    for (const auto& types : kTypes)
      for (int options = 0; options < 16; ++options)
        for (const float scale : {1.0f, 0.5f}) run(with_options(rows, columns, depth, types, options, scale));
}

TEST_F(MatmulCuda, AnEmptySumIsTheBias) {
  const OwnedTensor y = random_tensor(cpu(), DType::f32, {4, 6}, 1), bias = random_tensor(cpu(), DType::f32, {6}, 2);
  for (const bool accumulate : {false, true}) {
    const OwnedTensor gpu_y = on_gpu(y), gpu_bias = on_gpu(bias);
    const auto product = [&](Device& device, const Tensor& to, const Tensor& add) {
      const Tensor a = {to.data, DType::f32, {4, 0}}, b = {to.data, DType::f32, {0, 6}};
      matmul(device, {.y = to, .a = a, .b = b, .bias = add, .accumulate = accumulate});
    };
    product(cpu(), y, bias);
    product(gpu(), gpu_y, gpu_bias);
    EXPECT_EQ(values_of(on_cpu(gpu_y)), values_of(y));
  }
}

TEST_F(MatmulCuda, ASearchLeavesTheRightResult) {
  for (const auto& [rows, columns, depth] :
       std::vector<std::array<std::int64_t, 3>>{{33, 70, 45}, {256, 512, 128}, {64, 64, 4096}})
    for (const auto& types : kTypes)
      for (const int options : {0, 2, 5, 8, 10, 14}) run(with_options(rows, columns, depth, types, options, 0.5f));
}

// As a layer's three products: x Wᵀ, dy W, and dyᵀ x added to the gradient.
TEST_F(MatmulCuda, MatchesTheProcessorForALayer) {
  constexpr std::int64_t kTokens = 1000, kInputs = 768, kOutputs = 1024;
  for (const bool deterministic : {false, true}) {
    gpu().set_deterministic(deterministic);
    for (const auto& types : kTypes) {
      run({.rows = kTokens,
           .columns = kOutputs,
           .depth = kInputs,
           .operands = types.first,
           .result = types.second,
           .transpose_b = true,
           .bias = true});
      run({.rows = kTokens, .columns = kInputs, .depth = kOutputs, .operands = types.first, .result = types.second});
      run({.rows = kOutputs,
           .columns = kInputs,
           .depth = kTokens,
           .operands = types.first,
           .result = types.second,
           .transpose_a = true,
           .accumulate = true});
    }
  }
}

// Rows of a larger tensor, so that addresses are multiples of 2 or 4 bytes only.
TEST_F(MatmulCuda, TakesAnyAddress) {
  for (const auto& types : kTypes)
    for (int options = 0; options < 16; ++options) {
      const Case c = with_options(24, 40, 64, types, options, 1.0f);
      const Tensors host = on_host(c);
      const auto shifted = [&](const Tensor& tensor) {
        const OwnedTensor larger = random_tensor(cpu(), tensor.dtype, {tensor.count() + 1}, 9);
        std::memcpy(static_cast<std::byte*>(larger.view().data) + size_of(tensor.dtype), tensor.data, tensor.bytes());
        return on_gpu(larger);
      };
      const OwnedTensor y = shifted(host.y), a = shifted(host.a), b = shifted(host.b), bias = shifted(host.bias);
      const auto behind_first = [](const Tensor& larger, const Tensor& like) {
        return larger.slice(1, larger.count() - 1).reshaped(like.shape);
      };
      MatmulArgs args = host.args(c);
      matmul(cpu(), args);
      args.y = behind_first(y, host.y);
      args.a = behind_first(a, host.a);
      args.b = behind_first(b, host.b);
      if (c.bias) args.bias = behind_first(bias, host.bias);
      matmul(gpu(), args);
      expect_equal(args.y, host.y, c.depth + 2, 1.0, "shifted " + name(c));
      EXPECT_EQ(values_of(on_cpu(y))[0], values_of(random_tensor(cpu(), c.result, {1}, 9))[0]) << name(c);
    }
}

// TF32 keeps 11 bits of an operand: 2^-12 of each product, far outside of this tolerance.
TEST_F(MatmulCuda, MultipliesFp32AsItIs) {
  const Case c = {.rows = 128, .columns = 128, .depth = 1024, .operands = DType::f32, .result = DType::f32};
  run(c);
  const Tensors host = on_host(c), tensors = copy(host);
  matmul(gpu(), tensors.args(c));
  const std::vector<double> a = values_of(host.a), b = values_of(host.b);
  std::vector<double> expected(static_cast<std::size_t>(c.rows * c.columns), 0.0);
  for (std::int64_t i = 0; i < c.rows; ++i)
    for (std::int64_t k = 0; k < c.depth; ++k)
      for (std::int64_t j = 0; j < c.columns; ++j)
        expected[static_cast<std::size_t>(i * c.columns + j)] +=
            a[static_cast<std::size_t>(i * c.depth + k)] * b[static_cast<std::size_t>(k * c.columns + j)];
  expect_close(on_cpu(tensors.y), expected, c.depth, 1.0, "fp32");
}

}  // namespace
}  // namespace filigree::testing
