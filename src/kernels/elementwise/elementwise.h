// Small vector operations. All bitwise reproducible and independent of the thread count: sums are taken over fixed
// chunks (of 4096 elements on the CPU, more on a GPU), and the chunks' sums in order.
#pragma once

#include <cstdint>
#include <span>

#include "core/device.h"
#include "core/tensor.h"

namespace filigree {

// y += x. Same count; each fp32 or bf16; fp32 arithmetic. x may alias y.
void add(Device& device, const Tensor& y, const Tensor& x);
// y = x in y's type (rounds to nearest even towards bf16). Same count.
void convert(Device& device, const Tensor& y, const Tensor& x);
// y *= factor.
void scale(Device& device, const Tensor& y, float factor);
// y = value, fp32 or bf16.
void fill(Device& device, const Tensor& y, float value);
// sum (N) fp32 += over t of x (T, N), fp32 or bf16: the bias gradient.
void add_column_sums(Device& device, const Tensor& sum, const Tensor& x);
// Sum of squares over all tensors, fp32 or bf16 values, in double. NaN or infinity when a value is not finite. On a GPU
// one launch for all of them, after which the host waits; there packs of 16 bytes are squared and added in fp32 first.
double sum_of_squares(Device& device, std::span<const Tensor> tensors);
inline double sum_of_squares(Device& device, const Tensor& x) {
  return sum_of_squares(device, std::span(&x, 1));
}
// Sum of fp32 values, in double and in order of the elements on the CPU. The host waits for a GPU.
double sum(Device& device, const Tensor& x);

namespace cuda {  // the same on a GPU: elementwise_cuda.cu, column_sums_cuda.cu; called by the functions above
void add(Device& device, const Tensor& y, const Tensor& x);
void convert(Device& device, const Tensor& y, const Tensor& x);
void scale(Device& device, const Tensor& y, float factor);
void fill(Device& device, const Tensor& y, float value);
void add_column_sums(Device& device, const Tensor& sum, const Tensor& x);
double sum_of_squares(Device& device, std::span<const Tensor> tensors);
double sum(Device& device, const Tensor& x);
}  // namespace cuda

}  // namespace filigree
