// Kernels around the metadata of 2:4 matrices (nm_metadata.h) and the products that read it. All in the device's
// stream; exact and reproducible.
#pragma once

#include "core/device.h"
#include "kernels/nm/nm_format.h"
#include "kernels/nm/nm_metadata.h"

namespace filigree::cuda {

// metadata (rows·columns/8 bytes) = that of `mask` (rows, columns/8), in the order of `tiles`, whose places lie on the
// device as well. Extents are multiples of the tile's.
void write_metadata(Device& device, const Tensor& metadata, const Tensor& mask, std::int64_t columns,
                    const MetadataTiles& tiles, const std::uint16_t* places);

// dense (rows, columns) bf16 = 1 at the entries that `mask` (rows, columns/8) keeps, 0 elsewhere. columns: a multiple
// of 8.
void write_ones(Device& device, const Tensor& dense, const Tensor& mask);
// mask (bytes) in which group g has pattern g / divisor % kGroupPatterns; or one that hashing the byte's place gives.
void write_spelled(Device& device, const Tensor& mask, std::uint32_t divisor);
void write_scrambled(Device& device, const Tensor& mask);

// How many 32-bit words of two arrays of equal size differ. The host waits.
std::uint64_t differing_words(Device& device, const Tensor& a, const Tensor& b);
// How far y is from a reference, both bf16 of one shape: `wrong` elements with not |y - r| <= relative |r| + absolute
// (NaN is wrong), and a fingerprint of y's bits and their places. The host waits.
struct Difference {
  std::uint64_t wrong = 0;
  std::uint64_t fingerprint = 0;
};
Difference difference(Device& device, const Tensor& y, const Tensor& reference, float relative, float absolute);

}  // namespace filigree::cuda
