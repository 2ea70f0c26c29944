#include "kernels/decode_variants.h"

#include "kernels/block/block_decode_stream.cuh"
#include "kernels/nm/nm_decode_stream.cuh"

namespace filigree::bench {
namespace {

template <int kWarps, int kStages>
void multiply_24(const NmMatmulArgs& args, CUstream_st* stream) {
  cuda::launch_nm_decode_stream<kWarps, kStages>(args, true, stream);
}
template <int kWarps, int kStages>
constexpr DecodeVariant variant() {
  return {kWarps, kStages, &multiply_24<kWarps, kStages>, &decode::launch_block_decode_stream<kWarps, kStages>};
}

constexpr DecodeVariant kVariants[] = {variant<8, 3>(), variant<8, 4>(), variant<8, 5>(), variant<8, 6>()};

}  // namespace

std::span<const DecodeVariant> decode_variants() {
  return kVariants;
}

}  // namespace filigree::bench
