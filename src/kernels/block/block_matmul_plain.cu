// The products one output a thread, in order of the lists, without tensor cores: the fallback for blocks and GPUs that
// have no kernel of their own, and an independent check of those that have. About a hundredth of the Hopper kernels'
// speed.
#include <cuda_bf16.h>

#include "core/cuda_error.h"
#include "kernels/block/block_activation.cuh"
#include "kernels/block/block_plain.h"

namespace filigree::plain {

namespace {

using Element = __nv_bfloat16;

constexpr int kThreads = 256;

__device__ float rounded(float x) {
  return __bfloat162float(__float2bfloat16_rn(x));
}

// --- Kernels: thread i computes element i of the output
// -----------------------------------------------------------------

__global__ void forward_kernel(const BlockForwardArgs args) {
  const std::int64_t index = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const BlockGrid& grid = args.grid;
  if (index >= args.tokens * grid.rows) return;
  const std::int64_t token = index / grid.rows, output = index % grid.rows;
  const auto* x = static_cast<const Element*>(args.x) + token * grid.columns;
  const std::int64_t line = output / grid.block.rows, row = output % grid.block.rows;
  float sum = 0.0f;
  for (std::int32_t i = args.lists.row_start[line]; i < args.lists.row_start[line + 1]; ++i) {
    const BlockEntry entry = args.lists.row_entries[i];
    const auto* values = static_cast<const Element*>(args.values) +
                         (std::int64_t{entry.block} * grid.block.rows + row) * grid.block.columns;
    const std::int64_t first = std::int64_t{entry.other} * grid.block.columns;
    const std::int64_t width = min(static_cast<std::int64_t>(grid.block.columns), grid.columns - first);
    for (std::int64_t k = 0; k < width; ++k) sum += __bfloat162float(x[first + k]) * __bfloat162float(values[k]);
  }
  if (args.bias != nullptr) sum += args.bias[output];
  sum = rounded(sum);
  if (args.pre_activation != nullptr) static_cast<Element*>(args.pre_activation)[index] = __float2bfloat16_rn(sum);
  sum = rounded(activated(args.activation, sum));
  if (args.residual != nullptr) sum += __bfloat162float(static_cast<const Element*>(args.residual)[index]);
  static_cast<Element*>(args.y)[index] = __float2bfloat16_rn(sum);
}

__global__ void input_gradient_kernel(const BlockInputGradientArgs args) {
  const std::int64_t index = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const BlockGrid& grid = args.grid;
  if (index >= args.tokens * grid.columns) return;
  const std::int64_t token = index / grid.columns, input = index % grid.columns;
  const auto* dy = static_cast<const Element*>(args.dy) + token * grid.rows;
  const std::int64_t line = input / grid.block.columns, column = input % grid.block.columns;
  float sum = 0.0f;
  for (std::int32_t i = args.lists.column_start[line]; i < args.lists.column_start[line + 1]; ++i) {
    const BlockEntry entry = args.lists.column_entries[i];
    const auto* values =
        static_cast<const Element*>(args.values) + std::int64_t{entry.block} * grid.block_elements() + column;
    const std::int64_t first = std::int64_t{entry.other} * grid.block.rows;
    const std::int64_t height = min(static_cast<std::int64_t>(grid.block.rows), grid.rows - first);
    for (std::int64_t n = 0; n < height; ++n)
      sum += __bfloat162float(dy[first + n]) * __bfloat162float(values[n * grid.block.columns]);
  }
  auto* dx = static_cast<Element*>(args.dx) + index;
  if (args.activation != BlockActivation::none)
    sum =
        rounded(sum) * activation_derivative(args.activation,
                                             __bfloat162float(static_cast<const Element*>(args.pre_activation)[index]));
  if (args.accumulate) sum = rounded(sum) + __bfloat162float(*dx);
  *dx = __float2bfloat16_rn(sum);
}

// The y coordinate of the grid is the tile of the row's blocks.
__global__ void weight_gradient_kernel(const BlockWeightGradientArgs args) {
  const BlockGrid& grid = args.grid;
  const std::int64_t within = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (within >= grid.block_elements()) return;
  const BlockGradientTile tile = args.lists.gradient_tiles[blockIdx.y];
  const std::int64_t output = std::int64_t{tile.row} * grid.block.rows + within / grid.block.columns;
  for (std::int32_t place = tile.first; place < tile.first + tile.count; ++place) {
    const std::int64_t input =
        std::int64_t{args.lists.row_entries[place].other} * grid.block.columns + within % grid.block.columns;
    float sum = 0.0f;
    if (output < grid.rows && input < grid.columns)
      for (std::int64_t token = 0; token < args.tokens; ++token)
        sum += __bfloat162float(static_cast<const Element*>(args.dy)[token * grid.rows + output]) *
               __bfloat162float(static_cast<const Element*>(args.x)[token * grid.columns + input]);
    const std::int64_t at = place * grid.block_elements() + within;
    if (args.gradient_type == DType::f32) {
      auto* to = static_cast<float*>(args.gradient) + at;
      *to = args.accumulate ? *to + sum : sum;
    } else {
      auto* to = static_cast<Element*>(args.gradient) + at;
      *to = __float2bfloat16_rn(args.accumulate ? __bfloat162float(*to) + sum : sum);
    }
  }
}

unsigned blocks_for(std::int64_t threads) {
  return static_cast<unsigned>((threads + kThreads - 1) / kThreads);
}

}  // namespace

// --- Launchers
// ----------------------------------------------------------------------------------------------------------

void block_forward(const BlockForwardArgs& args, CUstream_st* stream) {
  forward_kernel<<<blocks_for(args.tokens * args.grid.rows), kThreads, 0, stream>>>(args);
  check(cudaGetLastError());
}

void block_input_gradient(const BlockInputGradientArgs& args, CUstream_st* stream) {
  input_gradient_kernel<<<blocks_for(args.tokens * args.grid.columns), kThreads, 0, stream>>>(args);
  check(cudaGetLastError());
}

void block_weight_gradient(const BlockWeightGradientArgs& args, CUstream_st* stream) {
  const dim3 grid(blocks_for(args.grid.block_elements()), static_cast<unsigned>(args.lists.gradient_tile_count));
  weight_gradient_kernel<<<grid, kThreads, 0, stream>>>(args);
  check(cudaGetLastError());
}

}  // namespace filigree::plain
