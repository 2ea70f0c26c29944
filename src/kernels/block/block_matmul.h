// The three products of a linear layer with a block-sparse weight W (N, K) (format: block_format.h). T tokens, K
// inputs, N outputs. On the GPU:
//
//   block_forward          y  (T, N) = activation(x (T, K) · Wᵀ + bias (N)) + residual (T, N)
//   block_input_gradient   dx (T, K) = (dy (T, N) · W) · activation'(z (T, K))          [+ dx when `accumulate`]
//   block_weight_gradient  gradient (blocks, block.rows, block.columns) = kept blocks of dyᵀ x   [+ gradient]
//
// Types: x, y, z, dy, dx, residual and values bf16; bias fp32; the gradient bf16 or fp32. fp32 accumulation. The
// product (with bias) is rounded to bf16 before an activation, its derivative, a residual or a former dx joins it in
// fp32: a fused call equals separate ones bit for bit. The gradient accumulates before rounding. All pointers are
// device memory, 16-byte aligned. Outputs alias no operand, but `residual` may be `y`.
//
// Asynchronous on `stream`: nothing is allocated, nothing waited for; operands may be reused when the work that the
// call put on the stream is done. Bitwise reproducible for equal arguments, lists and plan.
//
// A BlockPlan says which kernel runs (block_plan.h): for up to 16 tokens the forward product has one that reads any
// blocks at the memory's speed; for more, Hopper's own takes 128 x 128 blocks with N and K multiples of 8, and a plain
// one any block, shape and architecture.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "kernels/block/block_format.h"
#include "kernels/block/block_plan.h"

struct CUstream_st;

namespace filigree {

enum class BlockActivation : std::uint8_t { none, gelu, relu };  // as in activation.h

struct BlockForwardArgs {
  void* y = nullptr;               // (T, N)
  void* pre_activation = nullptr;  // (T, N), optional: z = x Wᵀ + bias, which the activation's backward reads
  const void* x = nullptr;         // (T, K)
  const void* values = nullptr;    // (blocks, block.rows, block.columns)
  const float* bias = nullptr;     // (N), optional
  const void* residual = nullptr;  // (T, N), optional
  BlockActivation activation = BlockActivation::none;
  std::int64_t tokens = 0;  // T
  BlockGrid grid;
  DeviceBlockLists lists;
  bool settled = false;  // neither values nor lists are written by the kernel before this one in the stream
};
void block_forward(const BlockForwardArgs& args, const BlockPlan& plan, CUstream_st* stream);

struct BlockInputGradientArgs {
  void* dx = nullptr;                    // (T, K)
  const void* dy = nullptr;              // (T, N)
  const void* values = nullptr;          // (blocks, block.rows, block.columns)
  const void* pre_activation = nullptr;  // (T, K): z, with an activation
  BlockActivation activation = BlockActivation::none;
  bool accumulate = false;  // without an activation
  std::int64_t tokens = 0;
  BlockGrid grid;
  DeviceBlockLists lists;
};
void block_input_gradient(const BlockInputGradientArgs& args, const BlockPlan& plan, CUstream_st* stream);

struct BlockWeightGradientArgs {
  void* gradient = nullptr;   // (blocks, block.rows, block.columns)
  const void* dy = nullptr;   // (T, N)
  const void* x = nullptr;    // (T, K)
  void* workspace = nullptr;  // plan.workspace_bytes
  DType gradient_type = DType::f32;
  bool accumulate = false;
  std::int64_t tokens = 0;
  BlockGrid grid;
  DeviceBlockLists lists;
};
void block_weight_gradient(const BlockWeightGradientArgs& args, const BlockPlan& plan, CUstream_st* stream);

// The current GPU's figures that a plan depends on. Asks the driver: call it once, at set-up.
BlockGpu block_gpu();

}  // namespace filigree
