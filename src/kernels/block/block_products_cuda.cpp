// The contract of block_products.h by the kernels of block_matmul.h, in the device's stream. Plans are plain
// arithmetic, made anew each call.
#include "kernels/block/block_matmul.h"
#include "kernels/block/block_products.h"

namespace filigree::cuda {
namespace {

class BlockState final : public LibraryState {
 public:
  BlockGpu gpu = block_gpu();
};

const BlockGpu& gpu_of(Device& device) {
  return device.library<BlockState>(Library::block, [] { return std::make_unique<BlockState>(); }).gpu;
}

BlockActivation activation_of(const std::optional<Activation>& activation) {
  if (!activation) return BlockActivation::none;
  return *activation == Activation::gelu ? BlockActivation::gelu : BlockActivation::relu;
}

}  // namespace

std::string block_products_refuse(Device& device, const BlockGrid& grid, DType dtype) {
  if (dtype != DType::bf16) return "the GPU's block kernels compute in bf16";
  if (choose_block_kernel(grid, gpu_of(device)) == BlockKernel::plain)
    return "the GPU's block kernels take 128x128 blocks and widths that are multiples of 8, on Hopper";
  return "";
}

void block_product(Device& device, const BlockProductArgs& args) {
  const BlockMatrix& weight = args.weight;
  const std::int64_t tokens = args.x.shape[0];
  block_forward({.y = args.y.data,
                 .pre_activation = args.activation ? args.pre_activation.data : nullptr,
                 .x = args.x.data,
                 .values = weight.values.data,
                 .bias = args.bias.empty() ? nullptr : args.bias.as<float>(),
                 .activation = activation_of(args.activation),
                 .tokens = tokens,
                 .grid = weight.grid,
                 .lists = weight.lists,
                 .settled = device.weights_settled()},
                plan_block_forward(weight.grid, tokens, gpu_of(device)), device.stream());
}

void block_product_dx(Device& device, const BlockProductDxArgs& args) {
  const BlockMatrix& weight = args.weight;
  const std::int64_t tokens = args.dy.shape[0];
  block_input_gradient({.dx = args.dx.data,
                        .dy = args.dy.data,
                        .values = weight.values.data,
                        .pre_activation = args.activation ? args.pre_activation.data : nullptr,
                        .activation = activation_of(args.activation),
                        .tokens = tokens,
                        .grid = weight.grid,
                        .lists = weight.lists},
                       plan_block_input_gradient(weight.grid, tokens, gpu_of(device)), device.stream());
}

void block_product_dw(Device& device, const BlockProductDwArgs& args) {
  const std::int64_t tokens = args.x.shape[0];
  const BlockPlan plan = plan_block_weight_gradient(args.grid, args.lists.gradient_tile_count, tokens, gpu_of(device));
  block_weight_gradient(
      {.gradient = args.gradient.data,
       .dy = args.dy.data,
       .x = args.x.data,
       .workspace = plan.workspace_bytes > 0 ? device.scratch(Scratch::kernel, plan.workspace_bytes) : nullptr,
       .gradient_type = DType::f32,
       .accumulate = args.accumulate,
       .tokens = tokens,
       .grid = args.grid,
       .lists = args.lists},
      plan, device.stream());
}

}  // namespace filigree::cuda
