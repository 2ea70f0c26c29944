// Dense matrix product, the baseline under every sparse one. On the CPU it is oneDNN's, except where ours was measured
// to be faster: bf16 on processors with AMX (matmul_amx.cpp) and a handful of rows, as in decoding
// (matmul_few_rows.cpp). On a GPU it is cuBLASLt's.
//
//   y (M, N) = scale · op(a) (M, K) · op(b) (K, N) + bias (N)  [+ y when `accumulate`]
//
// With an epilogue, an activation (activation.h) is part of the product p = scale · op(a) · op(b) + bias:
//   gelu_forward    z = p,  y = gelu(p)      z: `pre_activation`
//   gelu_backward   y = p · gelu'(z)         without a bias
//   relu_forward    y = relu(p)              relu's derivative follows from y; of a NaN it may be 0 in one pass
// Where cuBLASLt does this in one pass and that is the faster form, gelu is taken of p before it is rounded. Everywhere
// else a plain product and the activation's kernel run, and the second reads what the first has rounded to y's type.
//
// Shapes T, K, N of a linear layer, y = x Wᵀ:
//   forward  y  (T, N) = x (T, K) · Wᵀ    a = x,  b = W  with transpose_b
//   dX       dx (T, K) = dy (T, N) · W    a = dy, b = W
//   dW       dW (N, K) = dyᵀ · x          a = dy with transpose_a, b = x
//
// Element types: a and b alike, fp32 or bf16; y fp32 or bf16 (bf16 only with bf16 operands); bias fp32. Accumulation is
// fp32, of fp32 operands as they are (no TF32). y aliases no operand, nor z. Primitives are built once per shape and
// kept in the Device; a call with a known shape allocates nothing.
//
// Bitwise reproducible for equal shapes, types and thread count. On a GPU: within a run, for equal alignments too; from
// run to run only with Device::deterministic(), or with the choices of the other run (matmul_choices.h), because
// otherwise a shape's algorithm is the one that was fastest when it was first seen, and so is the form of an epilogue.
// A bias of a bf16 result may be rounded to bf16 before it is added.
#pragma once

#include "core/device.h"
#include "core/tensor.h"

namespace filigree {

enum class Epilogue : std::uint8_t { none, gelu_forward, gelu_backward, relu_forward };

struct MatmulArgs {
  Tensor y;          // (M, N)
  Tensor a;          // (M, K), or (K, M) with transpose_a
  Tensor b;          // (K, N), or (N, K) with transpose_b
  Tensor bias = {};  // (N) fp32, optional
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;  // add to y instead of overwriting it
  float scale = 1.0f;
  std::int64_t a_stride = 0;  // elements from a row of `a` to the next, where it is columns of a wider matrix; 0: none
                              // between rows. On a GPU alone
  Epilogue epilogue = Epilogue::none;
  Tensor pre_activation = {};  // (M, N) of y's type, of gelu alone: written by gelu_forward, read by gelu_backward
};
void matmul(Device& device, const MatmulArgs& args);

// A product with an epilogue in two steps, even where one would do.
void matmul_then_activation(Device& device, const MatmulArgs& args);

namespace cuda {  // the same on a GPU, by cuBLASLt; called by the function above
void matmul(Device& device, const MatmulArgs& args);
// Whether matmul() computes a product with an epilogue in one pass. It decides now, if the shape is new: y, and z of
// gelu_forward, are left undefined.
bool matmul_fuses(Device& device, const MatmulArgs& args);
}  // namespace cuda

}  // namespace filigree
