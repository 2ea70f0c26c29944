#include "kernels/activation/activation.h"
#include "kernels/matmul/matmul.h"

namespace filigree {

void matmul_then_gelu(Device& device, const MatmulArgs& args) {
  MatmulArgs product = args;
  product.epilogue = Epilogue::none;
  product.pre_activation = {};
  if (args.epilogue == Epilogue::gelu_forward) {
    product.y = args.pre_activation;
    matmul(device, product);
    activation_forward(device, {.kind = Activation::gelu, .y = args.y, .x = args.pre_activation});
    return;
  }
  matmul(device, product);
  activation_backward(device, {.kind = Activation::gelu, .dx = args.y, .dy = args.y, .x = args.pre_activation});
}

}  // namespace filigree
