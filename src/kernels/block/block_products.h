// The three products of a linear layer with a block-sparse weight W (N, K), wherever the device computes (format:
// block_format.h). T tokens, K inputs, N outputs.
//
//   block_product           z  (T, N) = x (T, K) · Wᵀ + bias (N),  y = activation(z), or z itself without one
//   block_product_dx        dx (T, K) = dy (T, N) · W                 exact: the same blocks, by their transposed lists
//                           dx (T, K) = (dy (T, N) · W) · activation'(z (T, K))
//   block_product_dw        gradient (blocks, block.rows, block.columns) = kept blocks of dyᵀ x   [+ gradient]
//
// Types: values, x, y, z, dy, dx alike: fp32 or bf16 on the CPU, bf16 on a GPU; bias and gradient fp32. fp32
// accumulation; what an activation is taken of, or its derivative multiplied with, is rounded before, so that separate
// calls give the same bits. Nothing aliases. Entries of blocks that hang over W are zero in the values; their gradient
// becomes zero.
//
// Only kept blocks are read and multiplied. On the CPU an output is summed in the order of its list, and a gradient
// over chunks of tokens whose length depends on nothing but the instruction set: bitwise reproducible on one processor
// kind and independent of the thread count. How fast, and by which vector units, is said in block_vectors.cpp. On a GPU
// block_matmul.h says it.
#pragma once

#include <optional>
#include <string>

#include "core/device.h"
#include "kernels/activation/activation.h"
#include "kernels/block/block_format.h"
#include "kernels/nm/nm_target.h"

namespace filigree {

// A view; values and lists are in the device's memory.
struct BlockMatrix {
  Tensor values;  // (blocks, block.rows, block.columns)
  BlockGrid grid;
  DeviceBlockLists lists;
};

struct BlockProductArgs {
  Tensor y;  // (T, N)
  Tensor x;  // (T, K)
  BlockMatrix weight;
  Tensor bias = {};                           // (N), optional
  std::optional<Activation> activation = {};  // gelu or relu
  Tensor pre_activation = {};                 // (T, N): z, written, with an activation; relu may do without
};
void block_product(Device& device, const BlockProductArgs& args);

struct BlockProductDxArgs {
  Tensor dx;  // (T, K)
  Tensor dy;  // (T, N)
  BlockMatrix weight;
  std::optional<Activation> activation = {};  // gelu or relu
  Tensor pre_activation = {};                 // (T, K): z, read, with an activation; for relu, relu(z) does as well
};
void block_product_dx(Device& device, const BlockProductDxArgs& args);

struct BlockProductDwArgs {
  Tensor gradient;  // (blocks, block.rows, block.columns)
  Tensor dy;        // (T, N)
  Tensor x;         // (T, K)
  BlockGrid grid;
  DeviceBlockLists lists;
  bool accumulate = false;
};
void block_product_dw(Device& device, const BlockProductDwArgs& args);

// On the CPU, with vector instructions that the caller chooses (nm_target.h) and without activations, which are kernels
// of their own there: for tests and benchmarks.
namespace cpu {
void block_product(Device& device, const BlockProductArgs& args, const NmTarget& target);
void block_product_dx(Device& device, const BlockProductDxArgs& args, const NmTarget& target);
void block_product_dw(Device& device, const BlockProductDwArgs& args, const NmTarget& target);
}  // namespace cpu

namespace cuda {
// Why a GPU has no fast kernels for a weight; "" when it has. Called once a weight, at set-up.
std::string block_products_refuse(Device& device, const BlockGrid& grid, DType dtype);

// Called by the functions above. bf16; any grid, at a hundredth of the speed where the kernels refuse, but for forward
// products of up to kDecodeTokens tokens (block_plan.h), which read any blocks at the memory's speed.
void block_product(Device& device, const BlockProductArgs& args);
void block_product_dx(Device& device, const BlockProductDxArgs& args);
void block_product_dw(Device& device, const BlockProductDwArgs& args);
}  // namespace cuda

}  // namespace filigree
