// Pointwise activations of the MLP. T tokens, F hidden width.
//
//   gelu     y = x/2 · (1 + tanh(sqrt(2/pi) · (x + 0.044715 x³)))     (GPT-2's form)
//   relu     y = max(x, 0); the derivative at 0 is 0, so that the backward pass may be given y for x
//   swiglu   y = silu(x[:, :F]) · x[:, F:]                            x is (T, 2F): gate, then up
//
// fp32 or bf16, arithmetic in fp32. y may alias x of one shape; dx may alias x or, of one shape with it, dy. Bitwise
// reproducible.
#pragma once

#include "core/device.h"
#include "core/tensor.h"

namespace filigree {

enum class Activation : std::uint8_t { gelu, relu, swiglu };

struct ActivationForwardArgs {
  Activation kind = Activation::gelu;
  Tensor y;  // (T, F)
  Tensor x;  // (T, F); (T, 2F) for swiglu
};
void activation_forward(Device& device, const ActivationForwardArgs& args);

struct ActivationBackwardArgs {
  Activation kind = Activation::gelu;
  Tensor dx;  // (T, F); (T, 2F) for swiglu; overwritten
  Tensor dy;  // (T, F)
  Tensor x;   // as in forward
};
void activation_backward(Device& device, const ActivationBackwardArgs& args);

namespace cuda {  // the same on a GPU: activation_cuda.cu; called by the functions above
void activation_forward(Device& device, const ActivationForwardArgs& args);
void activation_backward(Device& device, const ActivationBackwardArgs& args);
}  // namespace cuda

}  // namespace filigree
