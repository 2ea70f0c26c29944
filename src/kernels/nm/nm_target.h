// Which vector instructions the N:M kernels use. nm_matmul and nm_matmul_gradient take what the processor has; the
// overloads here let a test or a benchmark force any of them.
#pragma once

#include <cstdint>

#include "core/device.h"
#include "kernels/nm/nm_matmul.h"

namespace filigree {

enum class NmVectors : std::uint8_t {
  basic,   // 4 fp32 lanes: SSE4 on x86, whatever Highway finds elsewhere
  avx2,    // 8, with FMA
  avx512,  // 16
};

struct NmTarget {
  NmVectors vectors = NmVectors::basic;
  bool bf16_dot = false;  // AVX512_BF16's vdpbf16ps for bf16 products; else bf16 is widened and runs at fp32's speed
  bool words = false;     // AVX512_VBMI2: decoding in bf16 by vpexpandw, packing by vpcompressb
};

// What suits a processor. Sapphire Rapids and its successors run vdpbf16ps at less than half an instruction a cycle
// (measured: 85 to 115 GFLOP/s a core where fp32 products reach 190 to 230), so that widening is faster there; Zen 4
// and Cooper Lake run it at one a cycle. They are known by AMX or, where a hypervisor hides that, by AVX512_FP16.
NmTarget nm_target(const CpuFeatures& features);

void nm_matmul(Device& device, const NmMatmulArgs& args, const NmTarget& target);
void nm_matmul_gradient(Device& device, const NmGradientArgs& args, const NmTarget& target);

}  // namespace filigree
