// Products of a few tokens at the four widths of OPT-13B: dense (cuBLASLt), 2:4, and 128 x 128 blocks of which half are
// kept, each beside the other ways to cut the same work that are worth a try (decode_variants.cu lists them).
//
//   filigree_cuda_bench --only 13b-
//
// Names: 13b-LAYER-TOKENS-METHOD, of a variant METHOD-VARIANT. Results are compared with the dense product of the same
// matrix first.
#pragma once

#include "kernels/bandwidth_bench.h"

namespace filigree::bench {

void bench_decode(BandwidthBench& bench);

}  // namespace filigree::bench
