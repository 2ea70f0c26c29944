// The CPU's block products against the double reference, with every set of vector instructions that this processor has.
// Outputs are poisoned first.
#include "kernels/block/block_products.h"

#include <cstring>
#include <limits>
#include <utility>

#include "block_cases.h"
#include "kernels/block/block_mask.h"
#include "kernels/kernel_test.h"
#include "kernels/nm/nm_test.h"

namespace filigree::testing {
namespace {

OwnedTensor tensor_of(Device& device, DType dtype, Shape shape, const std::vector<double>& values) {
  OwnedTensor tensor = device.memory().tensor(Purpose::workspace, dtype, shape);
  for (std::size_t i = 0; i < values.size(); ++i) store(tensor, static_cast<std::int64_t>(i), values[i]);
  return tensor;
}

OwnedTensor poisoned(Device& device, DType dtype, Shape shape) {
  OwnedTensor tensor = device.memory().tensor(Purpose::workspace, dtype, shape);
  for (std::int64_t i = 0; i < shape.count(); ++i) store(tensor, i, std::numeric_limits<double>::quiet_NaN());
  return tensor;
}

// Kernels must not rely on what their scratch memory holds: all bits set are no number in either type.
void poison_scratch(Device& device) {
  constexpr std::size_t kBytes = std::size_t{8} << 20;  // more than any product here takes
  std::memset(device.scratch(Scratch::kernel, kBytes), 0xff, kBytes);
}

struct Case {
  const char* name;
  BlockGrid grid;
  double density;  // 0: a ragged mask that keeps half of the blocks, so that rows differ and columns may be empty
};

const Case kCases[] = {{"one_block", {.rows = 16, .columns = 16, .block = {16, 16}}, 1.0},
                       {"dense", {.rows = 64, .columns = 96, .block = {16, 16}}, 1.0},
                       {"half", {.rows = 96, .columns = 160, .block = {16, 16}}, 0.5},
                       {"quarter", {.rows = 80, .columns = 256, .block = {16, 32}}, 0.25},
                       {"eighth", {.rows = 64, .columns = 256, .block = {32, 16}}, 0.125},
                       {"ragged", {.rows = 144, .columns = 112, .block = {16, 16}}, 0},
                       {"overhanging", {.rows = 72, .columns = 100, .block = {16, 16}}, 0},
                       {"large_blocks", {.rows = 136, .columns = 200, .block = {128, 128}}, 0},
                       {"larger_than_w", {.rows = 40, .columns = 24, .block = {64, 64}}, 1.0},
                       {"odd_blocks", {.rows = 45, .columns = 51, .block = {10, 17}}, 0},
                       {"small_blocks", {.rows = 30, .columns = 42, .block = {4, 6}}, 0.4},
                       {"odd_width", {.rows = 33, .columns = 35, .block = {16, 16}}, 0.7}};

class BlockProducts : public ::testing::TestWithParam<std::tuple<NamedTarget, Case>> {
 protected:
  const NmTarget& target() const { return std::get<0>(GetParam()).target; }
  const BlockGrid& grid() const { return std::get<1>(GetParam()).grid; }
  DeviceBlockLists lists() const {
    return {.row_start = reference_.lists.row_start.data(),
            .row_entries = reference_.lists.row_entries.data(),
            .column_start = reference_.lists.column_start.data(),
            .column_entries = reference_.lists.column_entries.data(),
            .blocks = reference_.lists.blocks()};
  }
  Shape values_shape() const { return {lists().blocks, grid().block.rows, grid().block.columns}; }
  OwnedTensor values(Device& device, DType dtype) const {
    return tensor_of(device, dtype, values_shape(), reference_.values);
  }
  std::vector<double> inputs(std::int64_t tokens) const { return uniform_bf16(tokens * grid().columns, 14); }
  std::vector<double> output_gradients(std::int64_t tokens) const { return uniform_bf16(tokens * grid().rows, 15); }

  std::unique_ptr<Device> device_ = Device::cpu();
  BlockReference reference_ = random_matrix(grid(),
                                            std::get<1>(GetParam()).density == 0
                                                ? ragged_mask(grid(), 0.5, 11)
                                                : balanced_block_mask(grid(), std::get<1>(GetParam()).density, 12, 0),
                                            13);
};

// 1 to 16: decoding. 17, 48, 49: a panel of fewer vectors, a whole one, one more. 250: several panels.
constexpr std::int64_t kTokens[] = {0, 1, 2, 3, 7, 16, 17, 48, 49, 250};

TEST_P(BlockProducts, ForwardIsThatOfTheReference) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t tokens : kTokens)
      for (const bool with_bias : {false, true}) {
        if (with_bias && tokens > 17) continue;
        const std::vector<double> bias = uniform_bf16(grid().rows, 16), x = inputs(tokens);
        const OwnedTensor weights = values(*device_, dtype);
        const OwnedTensor in = tensor_of(*device_, dtype, {tokens, grid().columns}, x);
        const OwnedTensor offset = tensor_of(*device_, DType::f32, {grid().rows}, bias);
        const OwnedTensor y = poisoned(*device_, dtype, {tokens, grid().rows});
        cpu::block_product(
            *device_,
            {.y = y, .x = in, .weight = {weights, grid(), lists()}, .bias = with_bias ? offset.view() : Tensor{}},
            target());
        expect_close(y, reference_.forward(x, with_bias ? bias : std::vector<double>{}, tokens),
                     reference_.lists.most_in_row * std::int64_t{grid().block.columns} + 1, 1.0,
                     std::string(name_of(dtype)) + ", " + std::to_string(tokens) + " tokens");
      }
}

TEST_P(BlockProducts, InputGradientIsThatOfTheReference) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t tokens : kTokens) {
      const std::vector<double> dy = output_gradients(tokens);
      const OwnedTensor weights = values(*device_, dtype);
      const OwnedTensor out = tensor_of(*device_, dtype, {tokens, grid().rows}, dy);
      const OwnedTensor dx = poisoned(*device_, dtype, {tokens, grid().columns});
      poison_scratch(*device_);
      cpu::block_product_dx(*device_, {.dx = dx, .dy = out, .weight = {weights, grid(), lists()}}, target());
      expect_close(dx, reference_.input_gradient(dy, tokens),
                   reference_.lists.most_in_column * std::int64_t{grid().block.rows}, 1.0,
                   std::string(name_of(dtype)) + ", " + std::to_string(tokens) + " tokens");
    }
}

TEST_P(BlockProducts, WeightGradientIsThatOfTheReference) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t tokens : {0, 1, 2, 17, 256, 257}) {
      const std::vector<double> dy = output_gradients(tokens), x = inputs(tokens);
      const OwnedTensor out = tensor_of(*device_, dtype, {tokens, grid().rows}, dy);
      const OwnedTensor in = tensor_of(*device_, dtype, {tokens, grid().columns}, x);
      const OwnedTensor gradient = poisoned(*device_, DType::f32, values_shape());
      BlockProductDwArgs args{.gradient = gradient, .dy = out, .x = in, .grid = grid(), .lists = lists()};
      poison_scratch(*device_);
      cpu::block_product_dw(*device_, args, target());
      std::vector<double> expected = reference_.weight_gradient(dy, x, tokens);
      const std::string what = std::string(name_of(dtype)) + ", " + std::to_string(tokens) + " tokens";
      expect_close(gradient, expected, tokens, 1.0, what);
      // A second micro-batch adds.
      args.accumulate = true;
      cpu::block_product_dw(*device_, args, target());
      for (double& value : expected) value *= 2.0;
      expect_close(gradient, expected, 2 * tokens, 1.0, what + ", twice");
    }
}

TEST_P(BlockProducts, BitsDoNotDependOnTheThreadCount) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t tokens : {3, 330}) {
      std::vector<std::vector<double>> first;
      with_thread_counts({1, 2, 7}, [&](Device& device) {
        const OwnedTensor weights = values(device, dtype);
        const OwnedTensor x = tensor_of(device, dtype, {tokens, grid().columns}, inputs(tokens));
        const OwnedTensor dy = tensor_of(device, dtype, {tokens, grid().rows}, output_gradients(tokens));
        const OwnedTensor y = poisoned(device, dtype, {tokens, grid().rows});
        const OwnedTensor dx = poisoned(device, dtype, {tokens, grid().columns});
        const OwnedTensor gradient = poisoned(device, DType::f32, values_shape());
        const BlockMatrix weight{weights, grid(), lists()};
        cpu::block_product(device, {.y = y, .x = x, .weight = weight}, target());
        cpu::block_product_dx(device, {.dx = dx, .dy = dy, .weight = weight}, target());
        cpu::block_product_dw(device, {.gradient = gradient, .dy = dy, .x = x, .grid = grid(), .lists = lists()},
                              target());
        const std::vector<std::vector<double>> got = {values_of(y), values_of(dx), values_of(gradient)};
        if (first.empty()) first = got;
        EXPECT_EQ(got, first) << tokens << " tokens, " << device.threads() << " threads";
      });
    }
}

// Not a number in one token's inputs, or beyond the columns that a block hangs over, must not reach another token.
TEST_P(BlockProducts, TokensDoNotMix) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t tokens : {5, 100}) {
      const OwnedTensor weights = values(*device_, dtype);
      const OwnedTensor x = tensor_of(*device_, dtype, {tokens, grid().columns}, inputs(tokens));
      const OwnedTensor y = poisoned(*device_, dtype, {tokens, grid().rows});
      const BlockProductArgs args{.y = y, .x = x, .weight = {weights, grid(), lists()}};
      cpu::block_product(*device_, args, target());
      std::vector<double> clean = values_of(y);
      for (std::int64_t k = 0; k < grid().columns; ++k)
        store(x, 2 * grid().columns + k, std::numeric_limits<double>::quiet_NaN());
      cpu::block_product(*device_, args, target());
      const std::vector<double> got = values_of(y);
      for (std::int64_t t = 0; t < tokens; ++t)
        for (std::int64_t n = 0; n < grid().rows; ++n) {
          const auto at = static_cast<std::size_t>(t * grid().rows + n);
          if (t == 2)
            EXPECT_TRUE(std::isnan(got[at]));
          else
            EXPECT_EQ(got[at], clean[at]);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Targets, BlockProducts,
                         ::testing::Combine(::testing::ValuesIn(targets()), ::testing::ValuesIn(kCases)),
                         [](const auto& test) {
                           return std::get<0>(test.param).name + "_" + std::get<1>(test.param).name;
                         });

// Two of four blocks, and operands that fit.
class BlockProductsContract : public ::testing::Test {
 protected:
  OwnedTensor random(std::int64_t width, std::uint32_t stream, DType dtype = DType::f32) {
    return random_tensor(*device_, dtype, {4, width}, stream);
  }

  std::unique_ptr<Device> device_ = Device::cpu();
  const BlockGrid grid_{.rows = 32, .columns = 32, .block = {16, 16}};
  const BlockLists lists_ = make_block_lists(grid_, {1, 0, 0, 1});
  const DeviceBlockLists view_{.row_start = lists_.row_start.data(),
                               .row_entries = lists_.row_entries.data(),
                               .column_start = lists_.column_start.data(),
                               .column_entries = lists_.column_entries.data(),
                               .blocks = 2};
  const OwnedTensor values_ = random_tensor(*device_, DType::f32, {2, 16, 16}, 1);
  const BlockMatrix weight_{values_, grid_, view_};
};

TEST_F(BlockProductsContract, ActivationsJoinBitForBit) {
  for (const Activation kind : {Activation::gelu, Activation::relu}) {
    const OwnedTensor x = random(32, 2), y = random(32, 3), z = random(32, 4), plain = random(32, 5);
    block_product(*device_, {.y = y, .x = x, .weight = weight_, .activation = kind, .pre_activation = z});
    block_product(*device_, {.y = plain, .x = x, .weight = weight_});
    EXPECT_EQ(values_of(z), values_of(plain));
    activation_forward(*device_, {.kind = kind, .y = plain, .x = z});
    EXPECT_EQ(values_of(y), values_of(plain));
    if (kind == Activation::relu) {
      const OwnedTensor alone = random(32, 6);
      block_product(*device_, {.y = alone, .x = x, .weight = weight_, .activation = kind});
      EXPECT_EQ(values_of(alone), values_of(plain)) << "relu without its z";
    }
    block_product_dx(*device_, {.dx = y, .dy = x, .weight = weight_, .activation = kind, .pre_activation = z});
    block_product_dx(*device_, {.dx = plain, .dy = x, .weight = weight_});
    activation_backward(*device_, {.kind = kind, .dx = plain, .dy = plain, .x = z});
    EXPECT_EQ(values_of(y), values_of(plain));
  }
}

TEST_F(BlockProductsContract, RefusesWhatDoesNotFit) {
  const OwnedTensor x = random(32, 2), y = random(32, 3), narrow = random(31, 4), half = random(32, 5, DType::bf16);
  EXPECT_NO_THROW(block_product(*device_, {.y = y, .x = x, .weight = weight_}));
  EXPECT_THROW(block_product(*device_, {.y = y, .x = narrow, .weight = weight_}), Error);
  EXPECT_THROW(block_product(*device_, {.y = y, .x = half, .weight = weight_}), Error);
  EXPECT_THROW(block_product_dx(*device_, {.dx = narrow, .dy = y, .weight = weight_}), Error);
  EXPECT_THROW(block_product(*device_, {.y = y, .x = x, .weight = weight_, .activation = Activation::gelu}), Error);
  EXPECT_THROW(
      block_product(
          *device_,
          {.y = y, .x = x, .weight = weight_, .activation = Activation::swiglu, .pre_activation = random(32, 6)}),
      Error);
  EXPECT_THROW(
      block_product_dx(*device_,
                       {.dx = y, .dy = x, .weight = weight_, .activation = Activation::relu, .pre_activation = narrow}),
      Error);
  EXPECT_THROW(block_product_dw(*device_, {.gradient = x, .dy = y, .x = x, .grid = grid_, .lists = view_}), Error);
}

}  // namespace
}  // namespace filigree::testing
