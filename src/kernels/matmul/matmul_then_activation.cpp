#include "kernels/activation/activation.h"
#include "kernels/matmul/matmul.h"

namespace filigree {

void matmul_then_activation(Device& device, const MatmulArgs& args) {
  MatmulArgs product = args;
  product.epilogue = Epilogue::none;
  product.pre_activation = {};
  const Tensor &y = args.y, &z = args.pre_activation;
  switch (args.epilogue) {
    case Epilogue::none:
      return matmul(device, product);
    case Epilogue::gelu_forward:
      product.y = z;
      matmul(device, product);
      return activation_forward(device, {.kind = Activation::gelu, .y = y, .x = z});
    case Epilogue::gelu_backward:
      matmul(device, product);
      return activation_backward(device, {.kind = Activation::gelu, .dx = y, .dy = y, .x = z});
    case Epilogue::relu_forward:
      matmul(device, product);
      return activation_forward(device, {.kind = Activation::relu, .y = y, .x = y});
  }
}

}  // namespace filigree
