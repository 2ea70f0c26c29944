// The kernels of SLoPe's weight in bf16 2:4 that run each step, for a matrix (outputs, inputs).
#pragma once

#include "kernels/bandwidth_bench.h"

namespace filigree::bench {

void bench_slope(BandwidthBench& bench, std::int64_t outputs, std::int64_t inputs);

}  // namespace filigree::bench
