// The second pass of a sum over rows on a GPU, shared by the bias gradient and the gradients of norms.
#pragma once

#include <cstdint>

#include "core/device.h"

namespace filigree::cuda {

struct BandSums {
  float* out = nullptr;            // (N), accumulates; null: no such sum
  const float* partial = nullptr;  // a row of N sums for each band, `stride` floats apart
};
// out += the sums of all bands, for one or two such sums of the same shape. In a fixed order; asynchronous.
void add_band_sums(Device& device, const BandSums& first, const BandSums& second, std::int64_t bands,
                   std::int64_t stride, std::int64_t columns);

}  // namespace filigree::cuda
