#include "kernels/block/block_pack.h"

#include "block_cases.h"

namespace filigree::testing {
namespace {

class BlockPack : public ::testing::TestWithParam<BlockGrid> {
 protected:
  const BlockGrid& grid() const { return GetParam(); }
  BlockMatrix matrix(const Tensor& values) const {
    return {values,
            grid(),
            {.row_start = reference_.lists.row_start.data(),
             .row_entries = reference_.lists.row_entries.data(),
             .blocks = reference_.lists.blocks()}};
  }
  Shape shape() const { return {reference_.lists.blocks(), grid().block.rows, grid().block.columns}; }

  std::unique_ptr<Device> device_ = Device::cpu();
  BlockReference reference_ = random_matrix(GetParam(), ragged_mask(GetParam(), 0.5, 1), 2);
};

TEST_P(BlockPack, ExpandedIsTheDenseMatrixAndCompressedAgainTheValues) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const DType wide : {DType::f32, DType::bf16}) {
      const OwnedTensor values = device_->memory().tensor(Purpose::workspace, dtype, shape());
      for (std::size_t i = 0; i < reference_.values.size(); ++i)
        store(values, static_cast<std::int64_t>(i), reference_.values[i]);  // bf16 numbers: exact in either type
      const OwnedTensor dense = random_tensor(*device_, wide, {grid().rows, grid().columns}, 3);
      block_expand(*device_, dense, matrix(values));
      EXPECT_EQ(values_of(dense), reference_.dense());

      const OwnedTensor again = random_tensor(*device_, dtype, shape(), 4);
      block_compress(*device_, matrix(again), dense);
      EXPECT_EQ(values_of(again), reference_.values);
      block_compress(*device_, matrix(again), dense, true);
      std::vector<double> twice = reference_.values;
      for (double& value : twice) value *= 2.0;
      EXPECT_EQ(values_of(again), twice);
    }
}

TEST_P(BlockPack, RefusesAnotherShape) {
  const OwnedTensor values = random_tensor(*device_, DType::f32, shape(), 1);
  const OwnedTensor dense = random_tensor(*device_, DType::f32, {grid().columns + 1, grid().rows}, 2);
  EXPECT_THROW(block_expand(*device_, dense, matrix(values)), Error);
  EXPECT_THROW(block_compress(*device_, matrix(values), dense), Error);
}

INSTANTIATE_TEST_SUITE_P(Grids, BlockPack,
                         ::testing::Values(BlockGrid{.rows = 24, .columns = 32, .block = {8, 16}},
                                           BlockGrid{.rows = 21, .columns = 30, .block = {8, 16}},
                                           BlockGrid{.rows = 6, .columns = 5, .block = {16, 16}}));

}  // namespace
}  // namespace filigree::testing
