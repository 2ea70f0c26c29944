// Checks arguments and hands them to the device's kernels.
#include "kernels/block/block_products.h"

namespace filigree {
namespace {

void check(const char* product, const BlockGrid& grid, const DeviceBlockLists& lists, const Tensor& values,
           const Tensor& x, const Tensor& y) {
  const auto refuse = [&](const std::string& what) { throw Error(std::string(product) + ": " + what); };
  if (!(values.shape == Shape{lists.blocks, grid.block.rows, grid.block.columns}))
    refuse("values or gradient are " + to_string(values.shape) + ", the lists name " + std::to_string(lists.blocks) +
           " blocks");
  if (x.shape.rank() != 2 || y.shape.rank() != 2 || x.shape[0] != y.shape[0] || x.shape[1] != grid.columns ||
      y.shape[1] != grid.rows)
    refuse("shapes do not fit: x " + to_string(x.shape) + ", y " + to_string(y.shape) + ", weight (" +
           std::to_string(grid.rows) + ", " + std::to_string(grid.columns) + ")");
  if ((x.dtype != DType::f32 && x.dtype != DType::bf16) || y.dtype != x.dtype)
    refuse("activations must all be fp32 or all bf16");
}

// z is of y's, or dx's, shape.
void check_activation(const char* product, const std::optional<Activation>& activation, const Tensor& z,
                      const Tensor& result) {
  if (!activation) return;
  require(*activation != Activation::swiglu, std::string(product) + ": swiglu is no part of a product");
  require(z.shape == result.shape && z.dtype == result.dtype,
          std::string(product) + ": an activation needs its z, of the result's shape and type");
}

}  // namespace

void block_product(Device& device, const BlockProductArgs& args) {
  check("block_product", args.weight.grid, args.weight.lists, args.weight.values, args.x, args.y);
  require(args.weight.values.dtype == args.x.dtype, "block_product: values have another type than x");
  require(args.bias.empty() || (args.bias.dtype == DType::f32 && args.bias.count() == args.weight.grid.rows),
          "block_product: bias must be fp32 with one entry an output");
  const bool relu_alone = args.activation == Activation::relu && args.pre_activation.empty();
  if (!relu_alone) check_activation("block_product", args.activation, args.pre_activation, args.y);
  if constexpr (kBuiltWithCuda)
    if (device.is_cuda()) return cuda::block_product(device, args);
  BlockProductArgs product = args;
  if (args.activation && !relu_alone) product.y = args.pre_activation;
  cpu::block_product(device, product, nm_target(cpu_features()));
  if (args.activation) activation_forward(device, {.kind = *args.activation, .y = args.y, .x = product.y});
}

void block_product_dx(Device& device, const BlockProductDxArgs& args) {
  check("block_product_dx", args.weight.grid, args.weight.lists, args.weight.values, args.dx, args.dy);
  require(args.weight.values.dtype == args.dx.dtype, "block_product_dx: values have another type than dx");
  check_activation("block_product_dx", args.activation, args.pre_activation, args.dx);
  if constexpr (kBuiltWithCuda)
    if (device.is_cuda()) return cuda::block_product_dx(device, args);
  cpu::block_product_dx(device, args, nm_target(cpu_features()));
  if (args.activation)
    activation_backward(device, {.kind = *args.activation, .dx = args.dx, .dy = args.dx, .x = args.pre_activation});
}

void block_product_dw(Device& device, const BlockProductDwArgs& args) {
  check("block_product_dw", args.grid, args.lists, args.gradient, args.x, args.dy);
  require(args.gradient.dtype == DType::f32, "block_product_dw: the gradient is fp32");
  if constexpr (kBuiltWithCuda)
    if (device.is_cuda()) return cuda::block_product_dw(device, args);
  cpu::block_product_dw(device, args, nm_target(cpu_features()));
}

}  // namespace filigree
