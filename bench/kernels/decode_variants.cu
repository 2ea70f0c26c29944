#include "kernels/decode_variants.h"

#include "kernels/block/block_decode_stream.cuh"
#include "kernels/nm/nm_decode_stream.cuh"

namespace filigree::bench {
namespace {

using cuda::DecodeClusters;

template <int kStages, DecodeClusters kClusters>
void multiply_24(const NmMatmulArgs& args, CUstream_st* stream) {
  cuda::launch_nm_decode_stream<cuda::kDecodeStreamWarps, kStages>(args, true, stream, kClusters);
}
template <int kStages, DecodeClusters kClusters>
void multiply_blocks(const BlockForwardArgs& args, CUstream_st* stream) {
  decode::launch_block_decode_stream<cuda::kDecodeStreamWarps, kStages>(args, stream, kClusters);
}
template <int kStages, DecodeClusters kClusters = DecodeClusters::many_tokens>
constexpr DecodeVariant variant(const char* name) {
  return {name, &multiply_24<kStages, kClusters>, &multiply_blocks<kStages, kClusters>};
}

constexpr DecodeVariant kVariants[] = {variant<3>("3-stages"), variant<4>("4-stages"), variant<5>("5-stages"),
                                       variant<cuda::kDecodeStages, DecodeClusters::never>("alone"),
                                       variant<cuda::kDecodeStages, DecodeClusters::always>("clusters")};

}  // namespace

std::span<const DecodeVariant> decode_variants() {
  return kVariants;
}

}  // namespace filigree::bench
