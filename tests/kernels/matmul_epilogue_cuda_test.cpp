#include <cmath>

#include "kernels/cuda_test.h"
#include "kernels/matmul/matmul.h"

namespace filigree::testing {
namespace {

// Products with an activation, scaled so that their sums are about 1 in size, where gelu bends.
class MatmulEpilogueCuda : public CudaTest {
 protected:
  struct Case {
    std::int64_t rows, columns, depth;
    Epilogue epilogue;
    bool bias = false;
    std::pair<DType, DType> types = {DType::bf16, DType::bf16};
  };
  static std::string name(const Case& c) {
    return std::to_string(c.rows) + "x" + std::to_string(c.columns) + "x" + std::to_string(c.depth) + " " +
           std::string(name_of(c.types.first)) + " to " + std::string(name_of(c.types.second)) +
           (c.epilogue == Epilogue::relu_forward   ? " relu"
            : c.epilogue == Epilogue::gelu_forward ? " gelu forward"
                                                   : " gelu backward") +
           (c.bias ? " bias" : "");
  }
  static bool has_z(const Case& c) { return c.epilogue != Epilogue::relu_forward; }
  // All that a layer of the model asks for: a bias goes forward only.
  static std::vector<Case> all_of(std::int64_t rows, std::int64_t columns, std::int64_t depth,
                                  std::pair<DType, DType> types = {DType::bf16, DType::bf16}) {
    return {{rows, columns, depth, Epilogue::gelu_forward, true, types},
            {rows, columns, depth, Epilogue::gelu_forward, false, types},
            {rows, columns, depth, Epilogue::gelu_backward, false, types},
            {rows, columns, depth, Epilogue::relu_forward, true, types},
            {rows, columns, depth, Epilogue::relu_forward, false, types}};
  }

  struct Tensors {
    OwnedTensor y, z, a, b, bias;
    MatmulArgs args(const Case& c) const {
      return {.y = y,
              .a = a,
              .b = b,
              .bias = c.bias ? bias.view() : Tensor{},
              .transpose_b = c.epilogue != Epilogue::gelu_backward,
              .scale = 1.0f / std::sqrt(static_cast<float>(c.depth)),
              .epilogue = c.epilogue,
              .pre_activation = has_z(c) ? z.view() : Tensor{}};
    }
  };
  Tensors on_host(const Case& c) {
    const bool forward = c.epilogue != Epilogue::gelu_backward;
    return {random_tensor(cpu(), c.types.second, {c.rows, c.columns}, 5),
            random_tensor(cpu(), c.types.second, {c.rows, c.columns}, 4),
            random_tensor(cpu(), c.types.first, {c.rows, c.depth}, 1),
            random_tensor(cpu(), c.types.first, forward ? Shape{c.columns, c.depth} : Shape{c.depth, c.columns}, 2),
            random_tensor(cpu(), DType::f32, {c.columns}, 3, 0.5)};
  }
  Tensors copy(const Tensors& host) {
    return {on_gpu(host.y), on_gpu(host.z), on_gpu(host.a), on_gpu(host.b), on_gpu(host.bias)};
  }

  // The bias, z and the result may be rounded differently here and there, each by half a unit: gelu makes no more than
  // 1.13 of a difference in z, relu no more than all of it.
  void expect_near(const Tensor& on_gpu, const Tensor& reference, std::int64_t depth, const std::string& what) {
    const std::vector<double> expected = values_of(reference);
    const double root = std::sqrt(static_cast<double>(depth));
    expect_close(
        on_cpu(on_gpu), expected, depth,
        [&](std::size_t i) { return 1.5 * std::max(1.0, std::abs(expected[i])) / root; }, what);
  }

  using Product = void (*)(Device&, const MatmulArgs&);
  void run(const Case& c, Product product = matmul) {
    const Tensors host = on_host(c), first = copy(host), second = copy(host);
    matmul(cpu(), host.args(c));
    product(gpu(), first.args(c));
    expect_near(first.y, host.y, c.depth, name(c));
    if (has_z(c)) expect_near(first.z, host.z, c.depth, "z, " + name(c));
    if (c.epilogue != Epilogue::gelu_forward) expect_same(first.z, host.z, "z, " + name(c));
    const std::int64_t allocations = gpu().memory().allocations();
    product(gpu(), second.args(c));
    EXPECT_EQ(gpu().memory().allocations(), allocations) << name(c);
    EXPECT_EQ(values_of(on_cpu(second.y)), values_of(on_cpu(first.y))) << name(c);
    EXPECT_EQ(values_of(on_cpu(second.z)), values_of(on_cpu(first.z))) << name(c);
  }
  bool fuses(const Case& c) {
    const Tensors tensors = copy(on_host(c));
    return cuda::matmul_fuses(gpu(), tensors.args(c));
  }
};

// A deterministic device takes the fused form wherever there is one.
TEST_F(MatmulEpilogueCuda, MatchesTheProcessorInOnePass) {
  gpu().set_deterministic(true);
  for (const auto& [rows, columns, depth] :
       std::vector<std::array<std::int64_t, 3>>{{1, 8, 16}, {3, 64, 72}, {33, 40, 128}, {257, 72, 96}, {512, 256, 64}})
    for (const Case& c : all_of(rows, columns, depth)) run(c);
  for (const Case& c : all_of(1001, 1024, 768)) {
    EXPECT_TRUE(fuses(c)) << name(c);
    run(c);
  }
}

TEST_F(MatmulEpilogueCuda, MatchesTheProcessorInTwoSteps) {
  for (const Case& c : all_of(257, 72, 96)) run(c, matmul_then_activation);
  for (const Case& c : all_of(1001, 1024, 768)) run(c, matmul_then_activation);
}

TEST_F(MatmulEpilogueCuda, ASearchLeavesTheRightResult) {
  for (const auto& [rows, columns, depth] :
       std::vector<std::array<std::int64_t, 3>>{{1, 256, 64}, {33, 40, 128}, {1001, 1024, 768}})
    for (const Case& c : all_of(rows, columns, depth)) run(c);
}

TEST_F(MatmulEpilogueCuda, LeavesTheRestToTheActivation) {
  gpu().set_deterministic(true);
  for (const auto& types : {std::pair{DType::f32, DType::f32}, {DType::bf16, DType::bf16}, {DType::bf16, DType::f32}})
    for (const Case& c : all_of(65, types.second == DType::bf16 ? 67 : 72, 129, types)) {
      EXPECT_FALSE(fuses(c)) << name(c);
      run(c);
    }
  for (const Case& c : all_of(33, 40, 128)) {
    if (!has_z(c)) continue;
    const Tensors host = on_host(c), tensors = copy(host);
    const Shifted z = on_gpu_shifted(host.z);
    MatmulArgs args = tensors.args(c);
    args.pre_activation = z.view;
    EXPECT_FALSE(cuda::matmul_fuses(gpu(), args)) << name(c);
    matmul(cpu(), host.args(c));
    matmul(gpu(), args);
    expect_near(args.y, host.y, c.depth, "shifted " + name(c));
    expect_near(z.view, host.z, c.depth, "shifted z, " + name(c));
  }
}

}  // namespace
}  // namespace filigree::testing
