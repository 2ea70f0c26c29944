// Packing and the products' common contract on a GPU beside the processor's. The products' kernels have a test of their
// own, against the reference: block_matmul_gpu_test.cpp.
#include <limits>

#include "block_cases.h"
#include "kernels/block/block_pack.h"
#include "kernels/cuda_test.h"

namespace filigree::testing {
namespace {

class BlockCuda : public CudaTest {
 protected:
  // A random matrix with its lists, on both devices.
  struct Matrix {
    BlockReference reference;
    OwnedTensor values, gpu_values, row_start, row_entries, column_start, column_entries, gradient_tiles;
    BlockMatrix host, device;
  };
  template <typename T>
  OwnedTensor list_on_gpu(const std::vector<T>& list) {
    const auto words = static_cast<std::int64_t>(list.size() * sizeof(T) / 4);
    return on_gpu({const_cast<T*>(list.data()), DType::i32, {words}});
  }
  Matrix matrix(const BlockGrid& grid, DType dtype, std::uint32_t stream) {
    Matrix all;
    all.reference = random_matrix(grid, ragged_mask(grid, 0.5, stream), stream);
    const BlockLists& lists = all.reference.lists;
    all.values =
        cpu().memory().tensor(Purpose::workspace, dtype, {lists.blocks(), grid.block.rows, grid.block.columns});
    for (std::size_t i = 0; i < all.reference.values.size(); ++i)
      store(all.values, static_cast<std::int64_t>(i), all.reference.values[i]);
    all.gpu_values = on_gpu(all.values);
    all.row_start = list_on_gpu(lists.row_start);
    all.row_entries = list_on_gpu(lists.row_entries);
    all.column_start = list_on_gpu(lists.column_start);
    all.column_entries = list_on_gpu(lists.column_entries);
    all.gradient_tiles = list_on_gpu(lists.gradient_tiles);
    all.host = {all.values,
                grid,
                {.row_start = lists.row_start.data(),
                 .row_entries = lists.row_entries.data(),
                 .column_start = lists.column_start.data(),
                 .column_entries = lists.column_entries.data(),
                 .gradient_tiles = lists.gradient_tiles.data(),
                 .blocks = lists.blocks(),
                 .gradient_tile_count = static_cast<std::int64_t>(lists.gradient_tiles.size())}};
    all.device = {all.gpu_values,
                  grid,
                  {.row_start = all.row_start.view().as<std::int32_t>(),
                   .row_entries = static_cast<const BlockEntry*>(all.row_entries.view().data),
                   .column_start = all.column_start.view().as<std::int32_t>(),
                   .column_entries = static_cast<const BlockEntry*>(all.column_entries.view().data),
                   .gradient_tiles = static_cast<const BlockGradientTile*>(all.gradient_tiles.view().data),
                   .blocks = lists.blocks(),
                   .gradient_tile_count = all.host.lists.gradient_tile_count}};
    return all;
  }
};

const BlockGrid kGrids[] = {{.rows = 256, .columns = 384},
                            {.rows = 200, .columns = 328},
                            {.rows = 96, .columns = 160, .block = {16, 16}},
                            {.rows = 45, .columns = 51, .block = {10, 17}}};

TEST_F(BlockCuda, PackingGivesTheProcessorsBits) {
  for (const BlockGrid& grid : kGrids)
    for (const DType packed : {DType::f32, DType::bf16})
      for (const DType wide : {DType::f32, DType::bf16}) {
        const std::string what =
            to_string(grid.block) + " " + std::string(name_of(packed)) + " " + std::string(name_of(wide));
        const Matrix matrices = matrix(grid, packed, 1);
        const OwnedTensor dense = random_tensor(cpu(), wide, {grid.rows, grid.columns}, 2);
        const OwnedTensor gpu_dense = on_gpu(dense);
        for (const bool accumulate : {true, false}) {
          block_compress(cpu(), matrices.host, dense, accumulate);
          block_compress(gpu(), matrices.device, gpu_dense, accumulate);
          expect_same(matrices.gpu_values, matrices.values, "compress " + what);
        }
        block_expand(cpu(), dense, matrices.host);
        block_expand(gpu(), gpu_dense, matrices.device);
        expect_same(gpu_dense, dense, "expand " + what);
      }
}

TEST_F(BlockCuda, ProductsAreTheProcessors) {
  for (const BlockGrid& grid : kGrids)
    for (const std::int64_t tokens : {1, 40, 300}) {
      const std::string what = to_string(grid.block) + ", " + std::to_string(tokens) + " tokens";
      const Matrix matrices = matrix(grid, DType::bf16, 3);
      const OwnedTensor x = random_tensor(cpu(), DType::bf16, {tokens, grid.columns}, 4);
      const OwnedTensor dy = random_tensor(cpu(), DType::bf16, {tokens, grid.rows}, 5);
      const OwnedTensor bias = random_tensor(cpu(), DType::f32, {grid.rows}, 6);
      const OwnedTensor y = random_tensor(cpu(), DType::bf16, {tokens, grid.rows}, 7);
      const OwnedTensor dx = random_tensor(cpu(), DType::bf16, {tokens, grid.columns}, 8);
      const OwnedTensor dw = random_tensor(cpu(), DType::f32, matrices.values.view().shape, 9);
      const OwnedTensor gpu_x = on_gpu(x), gpu_dy = on_gpu(dy), gpu_bias = on_gpu(bias), gpu_y = on_gpu(y),
                        gpu_dx = on_gpu(dx), gpu_dw = on_gpu(dw);
      block_product(cpu(), {.y = y, .x = x, .weight = matrices.host, .bias = bias});
      block_product(gpu(), {.y = gpu_y, .x = gpu_x, .weight = matrices.device, .bias = gpu_bias});
      expect_equal(gpu_y, y, grid.columns, 2.0, what + ", y");
      block_product_dx(cpu(), {.dx = dx, .dy = dy, .weight = matrices.host});
      block_product_dx(gpu(), {.dx = gpu_dx, .dy = gpu_dy, .weight = matrices.device});
      expect_equal(gpu_dx, dx, grid.rows, 2.0, what + ", dx");
      for (const bool accumulate : {false, true}) {
        block_product_dw(
            cpu(),
            {.gradient = dw, .dy = dy, .x = x, .grid = grid, .lists = matrices.host.lists, .accumulate = accumulate});
        block_product_dw(gpu(), {.gradient = gpu_dw,
                                 .dy = gpu_dy,
                                 .x = gpu_x,
                                 .grid = grid,
                                 .lists = matrices.device.lists,
                                 .accumulate = accumulate});
        expect_equal(gpu_dw, dw, tokens, 4.0, what + ", dw");
      }
    }
}

// A product that takes an activation along gives the bits of the product and the activation's own kernel.
TEST_F(BlockCuda, ActivationsJoinBitForBit) {
  for (const BlockGrid& grid : kGrids)
    for (const std::int64_t tokens : {3, 300})
      for (const Activation kind : {Activation::gelu, Activation::relu}) {
        const std::string what = to_string(grid.block) + ", " + std::to_string(tokens) + " tokens";
        const Matrix matrices = matrix(grid, DType::bf16, 10);
        const auto random = [&](std::int64_t width, std::uint32_t stream) {
          return on_gpu(random_tensor(cpu(), DType::bf16, {tokens, width}, stream));
        };
        const OwnedTensor x = random(grid.columns, 11), dy = random(grid.rows, 12), before = random(grid.columns, 13);
        const OwnedTensor y = random(grid.rows, 14), z = random(grid.rows, 15), plain = random(grid.rows, 16);
        const OwnedTensor dz = random(grid.columns, 17), dx = random(grid.columns, 18);
        block_product(gpu(), {.y = y, .x = x, .weight = matrices.device, .activation = kind, .pre_activation = z});
        block_product(gpu(), {.y = plain, .x = x, .weight = matrices.device});
        expect_same(z, on_cpu(plain), what + ", z");
        activation_forward(gpu(), {.kind = kind, .y = plain, .x = z});
        expect_same(y, on_cpu(plain), what + ", y");
        block_product_dx(gpu(),
                         {.dx = dz, .dy = dy, .weight = matrices.device, .activation = kind, .pre_activation = before});
        block_product_dx(gpu(), {.dx = dx, .dy = dy, .weight = matrices.device});
        activation_backward(gpu(), {.kind = kind, .dx = dx, .dy = dx, .x = before});
        expect_same(dz, on_cpu(dx), what + ", dz");
      }
}

TEST_F(BlockCuda, SaysWhichWeightsItIsFastFor) {
  const bool hopper = gpu().gpu().capability == 90;
  EXPECT_EQ(cuda::block_products_refuse(gpu(), {.rows = 256, .columns = 384}, DType::bf16).empty(), hopper);
  EXPECT_NE(cuda::block_products_refuse(gpu(), {.rows = 256, .columns = 384}, DType::f32), "");
  EXPECT_NE(cuda::block_products_refuse(gpu(), {.rows = 256, .columns = 380}, DType::bf16), "");
  EXPECT_NE(cuda::block_products_refuse(gpu(), {.rows = 256, .columns = 384, .block = {16, 16}}, DType::bf16), "");
}

}  // namespace
}  // namespace filigree::testing
