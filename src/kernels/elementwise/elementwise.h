// Small vector operations. All bitwise reproducible and independent of the thread count: sums are taken over fixed
// chunks of 4096 elements, and the chunks' sums in order.
#pragma once

#include <cstdint>

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
// Sum of squares of fp32 or bf16 values, in double. NaN or infinity when a value is not finite.
double sum_of_squares(Device& device, const Tensor& x);

}  // namespace filigree
