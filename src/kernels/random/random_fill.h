// Random values by counter (core/random.h): element i depends on the key and on i alone.
//
//   y[i] = deviation · normal(i)
//
// y fp32. Computed in double and rounded once, so that the processor and a GPU, whose libraries round logarithms and
// cosines differently, agree but for the last bit of very few elements. Bitwise reproducible on each.
#pragma once

#include "core/device.h"
#include "core/random.h"
#include "core/tensor.h"

namespace filigree {

void fill_normal(Device& device, const Tensor& y, const Random& random, float deviation);

namespace cuda {  // the same on a GPU: random_fill_cuda.cu; called by the function above
void fill_normal(Device& device, const Tensor& y, const Random& random, float deviation);
}  // namespace cuda

}  // namespace filigree
