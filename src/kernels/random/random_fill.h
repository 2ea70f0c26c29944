// Random values by counter (core/random.h): element i depends on the key and on i alone.
//
//   fill_normal    y[i] = deviation · normal(i)
//   fill_uniform   y[i] in [0, 1), 24 random bits: word i % 4 of block i / 4
//
// y fp32. Normals are computed in double and rounded once, so that the processor and a GPU, whose libraries round
// logarithms and cosines differently, agree but for the last bit of very few elements. Bitwise reproducible on each.
#pragma once

#include "core/device.h"
#include "core/random.h"
#include "core/tensor.h"

namespace filigree {

void fill_normal(Device& device, const Tensor& y, const Random& random, float deviation);
void fill_uniform(Device& device, const Tensor& y, const Random& random);

namespace cuda {  // the same on a GPU: random_fill_cuda.cu; called by the functions above
void fill_normal(Device& device, const Tensor& y, const Random& random, float deviation);
void fill_uniform(Device& device, const Tensor& y, const Random& random);
}  // namespace cuda

}  // namespace filigree
