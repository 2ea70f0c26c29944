#include "kernels/block/block_reference.h"

#include "block_cases.h"

namespace filigree::testing {
namespace {

constexpr std::int64_t kTokens = 5;

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// Blocks that divide W and blocks that hang over its edges.
class BlockReferenceTest : public ::testing::TestWithParam<BlockGrid> {
 protected:
  BlockReference matrix_ = random_matrix(GetParam(), ragged_mask(GetParam(), 0.5, 1), 2);
  std::vector<double> x_ = uniform_bf16(kTokens * GetParam().columns, 3);
  std::vector<double> dy_ = uniform_bf16(kTokens * GetParam().rows, 4);
};

TEST_P(BlockReferenceTest, ForwardIsTheDenseProductOfTheMaskedWeight) {
  const BlockGrid& grid = GetParam();
  const std::vector<double> weight = matrix_.dense(), bias = uniform_bf16(grid.rows, 5);
  const std::vector<double> y = matrix_.forward(x_, bias, kTokens);
  for (std::int64_t t = 0; t < kTokens; ++t) {
    for (std::int64_t n = 0; n < grid.rows; ++n) {
      double sum = bias[static_cast<std::size_t>(n)];
      for (std::int64_t k = 0; k < grid.columns; ++k)
        sum +=
            x_[static_cast<std::size_t>(t * grid.columns + k)] * weight[static_cast<std::size_t>(n * grid.columns + k)];
      EXPECT_NEAR(y[static_cast<std::size_t>(t * grid.rows + n)], sum, 1e-12);
    }
  }
}

// The loss dy · y is linear in x and in the values, so that a central difference is exact but for rounding.
TEST_P(BlockReferenceTest, GradientsAreDifferencesOfTheLoss) {
  const std::vector<double> dx = matrix_.input_gradient(dy_, kTokens);
  const std::vector<double> dw = matrix_.weight_gradient(dy_, x_, kTokens);
  const std::vector<double> x_direction = uniform_bf16(static_cast<std::int64_t>(x_.size()), 6);
  const std::vector<double> w_direction = uniform_bf16(static_cast<std::int64_t>(matrix_.values.size()), 7);
  const auto loss = [&](double along_x, double along_w) {
    BlockReference moved = matrix_;
    std::vector<double> x = x_;
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += along_x * x_direction[i];
    for (std::size_t i = 0; i < moved.values.size(); ++i) moved.values[i] += along_w * w_direction[i];
    return dot(dy_, moved.forward(x, {}, kTokens));
  };
  EXPECT_NEAR((loss(1, 0) - loss(-1, 0)) / 2, dot(dx, x_direction), 1e-9);
  EXPECT_NEAR((loss(0, 1) - loss(0, -1)) / 2, dot(dw, w_direction), 1e-9);
}

INSTANTIATE_TEST_SUITE_P(Grids, BlockReferenceTest,
                         ::testing::Values(BlockGrid{.rows = 24, .columns = 32, .block = {8, 16}},
                                           BlockGrid{.rows = 21, .columns = 30, .block = {8, 16}}));

}  // namespace
}  // namespace filigree::testing
