// What a device can do at best, measured where the other figures are: a copy within its memory, and the dense product
// that runs fastest. Everything else is a share of one of them.
#pragma once

#include <vector>

#include "benchmark/results.h"

namespace filigree {

// Rows of the case "ceiling": metrics copy_gb_per_s (bytes read and written) and matmul_tflops (8192 x 8192 x 8192 in
// bf16 on a GPU, 2048 x 2048 x 2048 in `dtype` on the CPU).
std::vector<ResultRow> benchmark_ceiling(Device& device, DType dtype, int repeats);

}  // namespace filigree
