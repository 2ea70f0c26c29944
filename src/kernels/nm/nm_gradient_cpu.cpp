// Drives the weight gradient: checks, token chunks, threads, scratch memory.
//
//   for each chunk of tokens                 256 on AVX-512
//     transpose x and dy of the chunk        all threads
//     each thread: for its rows and columns
//       for each block of rows               their dy in L2
//         for each block of columns          their x in L1
//           nm_gradient_vectors.cpp
//
// An entry is summed over chunks in order; chunks depend on the target alone.
#include <algorithm>
#include <bit>
#include <cstddef>

#include "core/parallel.h"
#include "kernels/nm/nm_matmul.h"
#include "kernels/nm/nm_vectors.h"

namespace filigree {
namespace {

void check(const NmGradientArgs& args, std::int64_t inputs, std::int64_t outputs) {
  require(args.pattern.keep >= 1 && args.pattern.keep < args.pattern.of && args.pattern.of <= 32,
          "nm_matmul_gradient: no such pattern: " + to_string(args.pattern));
  require(inputs % args.pattern.of == 0, "nm_matmul_gradient: inputs are no multiple of the pattern's group");
  require(
      args.x.shape.rank() == 2 && args.dy.shape.rank() == 2 && args.x.shape[0] == args.dy.shape[0],
      "nm_matmul_gradient: x " + to_string(args.x.shape) + " and dy " + to_string(args.dy.shape) + " differ in tokens");
  require(args.gradient.dtype == DType::f32 &&
              args.gradient.shape == Shape{outputs, kept_columns(inputs, args.pattern)} &&
              args.mask.dtype == DType::u8 && args.mask.shape == Shape{outputs, mask_bytes(inputs)},
          "nm_matmul_gradient: gradient or mask have another shape or type than x and dy say");
  require((args.x.dtype == DType::f32 || args.x.dtype == DType::bf16) && args.dy.dtype == args.x.dtype,
          "nm_matmul_gradient: x and dy must both be fp32 or both bf16");
}

// Columns [begin, end) of `from` (tokens, columns), `tokens` from `token` on, transposed into a panel (columns, width)
// for the kernels: fp32, or pairs of bf16 tokens.
void load_chunk(const NmMatmulKernels& kernels, bool pairs, float* panel, std::int64_t width, const Tensor& from,
                std::int64_t token, std::int64_t tokens, std::int64_t begin, std::int64_t end) {
  const std::int64_t columns = from.shape[1];
  const auto* data = static_cast<const std::byte*>(from.data) +
                     (token * columns + begin) * static_cast<std::int64_t>(size_of(from.dtype));
  float* to = panel + begin * width;
  if (pairs)
    nm_dot_gradient_kernels().load_pairs(reinterpret_cast<std::uint32_t*>(to), width,
                                         reinterpret_cast<const bf16*>(data), columns, tokens, end - begin);
  else
    kernels.load_panel(to, width, data, from.dtype, columns, tokens, end - begin);
}

}  // namespace

void nm_matmul_gradient(Device& device, const NmGradientArgs& args) {
  require(!device.is_cuda(), "nm_matmul_gradient is for processors: on a GPU take the dense product and nm_compress");
  nm_matmul_gradient(device, args, nm_target(cpu_features()));
}

void nm_matmul_gradient(Device& device, const NmGradientArgs& args, const NmTarget& target) {
  const std::int64_t tokens = args.x.shape[0];
  const std::int64_t inputs = args.x.shape[-1];
  const std::int64_t outputs = args.dy.shape[-1];
  check(args, inputs, outputs);
  auto* gradient = args.gradient.as<float>();
  const std::int64_t stride = kept_columns(inputs, args.pattern);
  if (args.gradient.count() == 0) return;
  if (tokens == 0) {
    if (!args.accumulate) std::fill_n(gradient, outputs * stride, 0.0f);
    return;
  }
  const NmGradientPlan plan =
      plan_nm_gradient(inputs, outputs, args.pattern, args.x.dtype, target, cache_sizes(), device.threads());
  const std::int64_t lanes = nm_lanes(target.vectors);
  const std::int64_t full = plan.vectors * lanes;  // of fp32 or pairs
  const std::int64_t per_lane = plan.chunk / full;
  const int items = plan.row_splits * plan.column_splits;
  auto* x_panel =
      static_cast<float*>(device.scratch(Scratch::kernel, static_cast<std::size_t>((inputs + outputs) * full) * 4));
  float* dy_panel = x_panel + inputs * full;
  const auto& kernels = nm_matmul_kernels(target.vectors);
  const auto multiply =
      plan.bf16_dot ? nm_dot_gradient_kernels().gradient : nm_gradient_kernels(target.vectors).multiply;

  for (std::int64_t token = 0; token < tokens; token += plan.chunk) {
    const std::int64_t count = std::min(plan.chunk, tokens - token);
    const auto needed = static_cast<unsigned>((count + lanes * per_lane - 1) / (lanes * per_lane));
    const int vectors = static_cast<int>(std::bit_ceil(needed));
    const std::int64_t width = vectors * lanes;
    const auto load_all = [&](const Tensor& from, float* panel) {
      parallel_for(from.shape[1], 64, [&](std::int64_t begin, std::int64_t end) {
        load_chunk(kernels, plan.bf16_dot, panel, width, from, token, count, begin, end);
      });
    };
    load_all(args.x, x_panel);
    load_all(args.dy, dy_panel);
    parallel_for(items, 1, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t item = first; item < last; ++item) {
        const std::int64_t row_part = item / plan.column_splits;
        const std::int64_t column_part = item % plan.column_splits;
        const std::int64_t row_begin = outputs * row_part / plan.row_splits;
        const std::int64_t row_end = outputs * (row_part + 1) / plan.row_splits;
        const std::int64_t blocks = (inputs + plan.column_block - 1) / plan.column_block;
        const std::int64_t column_begin = blocks * column_part / plan.column_splits * plan.column_block;
        const std::int64_t column_end =
            std::min(inputs, blocks * (column_part + 1) / plan.column_splits * plan.column_block);
        for (std::int64_t row = row_begin; row < row_end; row += plan.row_block)
          for (std::int64_t column = column_begin; column < column_end; column += plan.column_block) {
            NmGradientBlock block;
            block.gradient = gradient + row * stride + kept_columns(column, args.pattern);
            block.gradient_stride = stride;
            block.dy = dy_panel + row * width;
            block.x = x_panel + column * width;
            block.mask = static_cast<const std::uint8_t*>(args.mask.data) + row * mask_bytes(inputs);
            block.mask_stride = mask_bytes(inputs);
            block.begin = column;
            block.columns = static_cast<int>(std::min(plan.column_block, column_end - column));
            block.rows = std::min(plan.row_block, row_end - row);
            block.add = args.accumulate || token > 0;
            const std::int64_t next = column + plan.column_block;
            block.next = x_panel + (next < column_end ? next : column_begin) * width;
            multiply(block, vectors);
          }
      }
    });
  }
}

}  // namespace filigree
