// y (T, N) = x (T, K) Wᵀ for T <= 16, W compressed 2:4: decode_stream.cuh where K is a multiple of 64, as widths are;
// here the kernel for other multiples of 8, for which memory is read in pieces of 8 bytes.
//
// Tensor cores multiply. A block takes 16 rows of W, its warps take steps of 64 inputs in turn, and their sums are
// added at the end. In a step a lane holds, of one row, 16 inputs: 16 bytes of values and 16 mask bits. Each group of
// four is expanded to four bf16, zeros where nothing is kept, which are its part of W's operand; the same four inputs
// of one token (and of a second one, when there are more than 8) are its part of x's. A product over K may take its
// inputs in any order that both operands share, so no lane needs another one's data.
#include "kernels/cuda_vector.cuh"
#include "kernels/decode_warp.cuh"
#include "kernels/nm/nm_decode_cuda.h"
#include "kernels/nm/nm_decode_stream.cuh"

namespace filigree::cuda {
namespace {

constexpr int kWarps = 8, kThreads = kWarps * kWarp;
constexpr int kTileRows = 8, kTiles = 2, kRows = kTiles * kTileRows;
constexpr int kLaneInputs = 16, kStep = 4 * kLaneInputs;
constexpr int kMostTokens = 16;

struct DecodeArgs {
  __nv_bfloat16* y = nullptr;             // (T, N)
  const __nv_bfloat16* x = nullptr;       // (T, K)
  const __nv_bfloat16* values = nullptr;  // (N, K/2)
  const std::uint8_t* mask = nullptr;     // (N, K/8)
  const float* bias = nullptr;            // (N) or null
  int tokens = 0;
  std::int64_t rows = 0, columns = 0;  // N, K
  float scale = 1.0f;
  bool accumulate = false;
};

// A lane's part of a step.
template <int kHalves>  // of 8 tokens
struct Operands {
  std::uint32_t values[kTiles][4];  // a word a group: its two kept values
  std::uint32_t bits[kTiles];       // 16 mask bits
  std::uint32_t x[kHalves][8];      // pairs of inputs of one token
};

__device__ __forceinline__ void put(std::uint32_t (&words)[8], int first, const uint4& four) {
  words[first] = four.x;
  words[first + 1] = four.y;
  words[first + 2] = four.z;
  words[first + 3] = four.w;
}

// A lane's inputs come in two halves of 8, of which the last one of a row may not be there.
template <int kHalves>
__device__ __forceinline__ Operands<kHalves> load_step(const DecodeArgs& args, std::int64_t row0, std::int64_t column) {
  const int row_lane = threadIdx.x % kWarp / 4;  // of a tile; and the token of x
  Operands<kHalves> out = {};
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    // Rows below the last one are read in its place, and not written.
    const std::int64_t row = min(row0 + tile * kTileRows + row_lane, args.rows - 1);
    const auto* values = reinterpret_cast<const std::uint8_t*>(args.values) + row * args.columns + column;
    const std::uint8_t* mask = args.mask + (row * args.columns + column) / 8;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (column + 8 * half >= args.columns) continue;
      const uint2 two = __ldg(reinterpret_cast<const uint2*>(values + 8 * half));
      out.values[tile][2 * half] = two.x;
      out.values[tile][2 * half + 1] = two.y;
      out.bits[tile] |= static_cast<std::uint32_t>(__ldg(mask + half)) << 8 * half;
    }
  }
#pragma unroll
  for (int half = 0; half < kHalves; ++half) {
    const int token = 8 * half + row_lane;
    if (token >= args.tokens) continue;
    const auto* x = reinterpret_cast<const uint4*>(args.x + token * args.columns + column);
    if (column < args.columns) put(out.x[half], 0, __ldg(x));
    if (column + 8 < args.columns) put(out.x[half], 4, __ldg(x + 1));
  }
  return out;
}

// Two neighbouring entries of a group from its two kept values, `kept` saying which of them are there: selectors of
// bytes 0 to 3, the values, and 4, a zero. The left two entries begin with the first value, the right two end with the
// second one.
__device__ __forceinline__ std::uint32_t left_entries(std::uint32_t values, std::uint32_t kept) {
  return __byte_perm(values, 0, __byte_perm(0x44104444u, 0x32101044u, kept * 0x22u + 0x10u));
}
__device__ __forceinline__ std::uint32_t right_entries(std::uint32_t values, std::uint32_t kept) {
  return __byte_perm(values, 0, __byte_perm(0x44324444u, 0x32103244u, kept * 0x22u + 0x10u));
}

template <int kHalves>
__device__ __forceinline__ void multiply_step(float (&sums)[kTiles][4], const Operands<kHalves>& step) {
#pragma unroll
  for (int group = 0; group < 4; ++group)
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const std::uint32_t values = step.values[tile][group], kept = step.bits[tile] >> 4 * group;
      const std::uint32_t w0 = left_entries(values, kept & 3u), w1 = right_entries(values, kept >> 2 & 3u);
      const std::uint32_t x1 = kHalves == 2 ? step.x[kHalves - 1][2 * group] : 0u;
      const std::uint32_t x3 = kHalves == 2 ? step.x[kHalves - 1][2 * group + 1] : 0u;
      // The tokens as rows of 16, W's rows as columns.
      const std::uint32_t x[4] = {step.x[0][2 * group], x1, step.x[0][2 * group + 1], x3};
      multiply(sums[tile], x, w0, w1);
    }
}

template <int kHalves>
__global__ void __launch_bounds__(kThreads, 2) decode_kernel(const __grid_constant__ DecodeArgs args) {
  __shared__ float partial[kWarps][8 * kHalves][kRows];
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const std::int64_t row0 = static_cast<std::int64_t>(blockIdx.x) * kRows;

  float sums[kTiles][4] = {};
  const std::int64_t lane_column = lane % 4 * kLaneInputs;
  std::int64_t begin = static_cast<std::int64_t>(warp) * kStep;
  if (begin < args.columns) {
    auto now = load_step<kHalves>(args, row0, begin + lane_column);
    for (begin += kWarps * kStep; begin < args.columns; begin += kWarps * kStep) {
      const auto next = load_step<kHalves>(args, row0, begin + lane_column);
      multiply_step(sums, now);
      now = next;
    }
    multiply_step(sums, now);
  }
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
    for (int i = 0; i < 2 * kHalves; ++i)
      partial[warp][i / 2 * 8 + lane / 4][tile * kTileRows + lane % 4 * 2 + i % 2] = sums[tile][i];
  __syncthreads();

  for (int i = threadIdx.x; i < args.tokens * kRows; i += kThreads) {
    const int token = i / kRows;
    const std::int64_t row = row0 + i % kRows;
    if (row >= args.rows) continue;
    float sum = 0.0f;
#pragma unroll
    for (int part = 0; part < kWarps; ++part) sum += partial[part][token][i % kRows];
    sum = args.scale * sum + (args.bias != nullptr ? args.bias[row] : 0.0f);
    __nv_bfloat16& y = args.y[token * args.rows + row];
    y = from_float<__nv_bfloat16>(args.accumulate ? sum + to_float(y) : sum);
  }
}

template <int kHalves>
void launch(Device& device, const DecodeArgs& args) {
  decode_kernel<kHalves><<<blocks_for(args.rows, kRows), kThreads, 0, device.stream()>>>(args);
  check_launch();
}

}  // namespace

bool takes_nm_decode(const NmMatmulArgs& args) {
  const NmMatrix& weight = args.weight;
  const std::int64_t tokens = args.x.shape[0];
  return weight.pattern == Pattern{2, 4} && args.x.dtype == DType::bf16 && weight.values.dtype == DType::bf16 &&
         args.y.dtype == DType::bf16 && tokens >= 1 && tokens <= kMostTokens && weight.rows > 0 && weight.columns > 0 &&
         weight.columns % 8 == 0 && std::max(weight.rows, weight.columns) <= INT32_MAX / 2 &&
         aligned({args.x.data, weight.values.data, weight.mask.data});
}

void nm_decode(Device& device, const NmMatmulArgs& args) {
  require(takes_nm_decode(args), "nm_decode: not a product of a few tokens with a 2:4 matrix in bf16");
  const NmMatrix& weight = args.weight;
  if (weight.columns % NmDecodeWeights::kWidth == 0 && DecodeGpu::current().streams())
    return launch_nm_decode_stream<kDecodeStreamWarps, kDecodeStages>(args, device.weights_settled(), device.stream());
  const DecodeArgs to{.y = static_cast<__nv_bfloat16*>(args.y.data),
                      .x = static_cast<const __nv_bfloat16*>(args.x.data),
                      .values = static_cast<const __nv_bfloat16*>(weight.values.data),
                      .mask = weight.mask.as<std::uint8_t>(),
                      .bias = args.bias.empty() ? nullptr : args.bias.as<float>(),
                      .tokens = static_cast<int>(args.x.shape[0]),
                      .rows = weight.rows,
                      .columns = weight.columns,
                      .scale = args.scale,
                      .accumulate = args.accumulate};
  if (to.tokens > 8)
    launch<2>(device, to);
  else
    launch<1>(device, to);
}

}  // namespace filigree::cuda
