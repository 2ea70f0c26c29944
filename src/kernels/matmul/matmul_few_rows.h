// Products with a few rows of a, as in decoding: bound by reading the weights once.
#pragma once

#include "kernels/matmul/matmul.h"

namespace filigree {

// Whether the kernel takes this product: at most 8 rows (4 in bf16), b transposed (the forward pass), a not.
bool takes_matmul_few_rows(const MatmulArgs& args);
void matmul_few_rows(Device& device, const MatmulArgs& args);

}  // namespace filigree
