// Checks arguments and hands them to the kernel that the plan names.
#include "kernels/block/block_matmul.h"

#include <cuda_runtime.h>

#include <string>

#include "core/cuda_error.h"
#include "kernels/block/block_decode_cuda.h"
#include "kernels/block/block_plain.h"
#include "kernels/block/sm90_block.h"

namespace filigree {

namespace {

void check_shape(const char* product, std::int64_t tokens, const BlockGrid& grid, const DeviceBlockLists& lists) {
  const auto refuse = [&](const std::string& what) { throw Error(std::string(product) + ": " + what); };
  if (tokens < 0 || tokens > INT32_MAX) refuse("tokens are " + std::to_string(tokens));
  if (grid.rows < 1 || grid.columns < 1) refuse("an empty weight");
  if (lists.blocks < 1 || lists.blocks * grid.block.rows > INT32_MAX)
    refuse(std::to_string(lists.blocks) + " kept blocks; between 1 and 2^31 rows of values are supported");
}

void check_plan(const char* product, const BlockPlan& plan, const BlockGrid& grid) {
  if (plan.kernel != BlockKernel::sm90) return;
  const bool fits = grid.block == BlockShape{kSm90Block, kSm90Block} && grid.rows % 8 == 0 && grid.columns % 8 == 0;
  require(fits, std::string(product) + ": the Hopper kernel takes 128 x 128 blocks and widths that are multiples of 8");
}

}  // namespace

void block_forward(const BlockForwardArgs& args, const BlockPlan& plan, CUstream_st* stream) {
  check_shape("block_forward", args.tokens, args.grid, args.lists);
  check_plan("block_forward", plan, args.grid);
  if (args.tokens == 0) return;
  if (plan.kernel == BlockKernel::decode) {
    require(args.tokens <= kDecodeTokens && plan.warps >= 1 && plan.warps <= kDecodeWarps,
            "block_forward: the decoding kernel takes up to " + std::to_string(kDecodeTokens) +
                " tokens, and a plan of its own");
    decode::block_forward(args, plan, stream);
  }
  if (plan.kernel == BlockKernel::sm90) sm90::block_forward(args, plan, stream);
  if (plan.kernel == BlockKernel::plain) plain::block_forward(args, stream);
}

void block_input_gradient(const BlockInputGradientArgs& args, const BlockPlan& plan, CUstream_st* stream) {
  check_shape("block_input_gradient", args.tokens, args.grid, args.lists);
  check_plan("block_input_gradient", plan, args.grid);
  require(args.activation == BlockActivation::none || (args.pre_activation != nullptr && !args.accumulate),
          "block_input_gradient: an activation needs its z, and joins no accumulation");
  if (args.tokens == 0) return;
  if (plan.kernel == BlockKernel::sm90) sm90::block_input_gradient(args, plan, stream);
  if (plan.kernel == BlockKernel::plain) plain::block_input_gradient(args, stream);
}

void block_weight_gradient(const BlockWeightGradientArgs& args, const BlockPlan& plan, CUstream_st* stream) {
  check_shape("block_weight_gradient", args.tokens, args.grid, args.lists);
  check_plan("block_weight_gradient", plan, args.grid);
  require(args.gradient_type == DType::f32 || args.gradient_type == DType::bf16,
          "block_weight_gradient: the gradient is fp32 or bf16");
  require(plan.workspace_bytes == 0 || args.workspace != nullptr, "block_weight_gradient: the plan needs a workspace");
  if (args.tokens == 0) {
    if (!args.accumulate)
      check(cudaMemsetAsync(
          args.gradient, 0,
          static_cast<std::size_t>(args.lists.blocks * args.grid.block_elements()) * size_of(args.gradient_type),
          stream));
    return;
  }
  if (plan.kernel == BlockKernel::sm90) sm90::block_weight_gradient(args, plan, stream);
  if (plan.kernel == BlockKernel::plain) plain::block_weight_gradient(args, stream);
}

BlockGpu block_gpu() {
  int device = 0;
  BlockGpu gpu;
  check(cudaGetDevice(&device));
  check(cudaDeviceGetAttribute(&gpu.major, cudaDevAttrComputeCapabilityMajor, device));
  check(cudaDeviceGetAttribute(&gpu.minor, cudaDevAttrComputeCapabilityMinor, device));
  gpu.clusters = gpu.major == 9 ? sm90::active_clusters() : 0;
  return gpu;
}

}  // namespace filigree
