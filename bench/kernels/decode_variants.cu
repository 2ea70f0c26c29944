#include "kernels/decode_variants.h"

#include "kernels/block/block_decode_stream.cuh"
#include "kernels/nm/nm_decode_stream.cuh"

namespace filigree::bench {
namespace {

template <int kStages, bool kClusters>
void multiply_24(const NmMatmulArgs& args, CUstream_st* stream) {
  cuda::launch_nm_decode_stream<cuda::kDecodeStreamWarps, kStages>(args, true, stream, kClusters);
}
template <int kStages, bool kClusters>
void multiply_blocks(const BlockForwardArgs& args, CUstream_st* stream) {
  decode::launch_block_decode_stream<cuda::kDecodeStreamWarps, kStages>(args, stream, kClusters);
}
template <int kStages, bool kClusters = true>
constexpr DecodeVariant variant() {
  return {cuda::kDecodeStreamWarps, kStages, kClusters, &multiply_24<kStages, kClusters>,
          &multiply_blocks<kStages, kClusters>};
}

constexpr DecodeVariant kVariants[] = {variant<3>(), variant<4>(), variant<5>(), variant<6, false>()};

}  // namespace

std::span<const DecodeVariant> decode_variants() {
  return kVariants;
}

}  // namespace filigree::bench
