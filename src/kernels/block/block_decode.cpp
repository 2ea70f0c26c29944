// Bound by memory: the kept values, 8 bytes of a list for each block, and nothing else. Inputs are in the lanes; a
// block row's weights stay in L1 or L2 while the next tokens come.
#include "kernels/block/block_decode.h"

#include <algorithm>

#include "core/parallel.h"
#include "kernels/block/block_vectors.h"
#include "kernels/nm/nm_plan.h"

namespace filigree::cpu {

void block_decode(Device& device, const BlockProductArgs& args, const NmTarget& target) {
  const BlockGrid& grid = args.weight.grid;
  const std::int64_t tokens = args.x.shape[0];
  BlockDecodeArgs call;
  call.bias = args.bias.empty() ? nullptr : args.bias.as<float>();
  call.values = args.weight.values.data;
  call.dtype = args.x.dtype;
  call.grid = grid;
  call.row_start = args.weight.lists.row_start;
  call.row_entries = args.weight.lists.row_entries;
  // A block's last vector may reach beyond it.
  call.x_stride = grid.block_columns() * grid.block.columns + nm_lanes(target.vectors);
  auto* x = static_cast<float*>(
      device.scratch(Scratch::kernel, static_cast<std::size_t>(tokens * call.x_stride) * sizeof(float)));
  with_compute_type(args.x.dtype, [&]<typename T>() {
    const T* from = args.x.as<T>();
    for (std::int64_t t = 0; t < tokens; ++t) {
      float* to = x + t * call.x_stride;
      for (std::int64_t k = 0; k < grid.columns; ++k) to[k] = static_cast<float>(from[t * grid.columns + k]);
      std::fill(to + grid.columns, to + call.x_stride, 0.0f);
    }
  });
  const auto decode = block_kernels(target.vectors).decode;
  parallel_for(grid.block_rows(), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t line = begin; line < end; ++line)
      for (std::int64_t token = 0; token < tokens; token += kBlockDecodeTokens) {
        BlockDecodeArgs some = call;
        some.tokens = static_cast<int>(std::min<std::int64_t>(kBlockDecodeTokens, tokens - token));
        some.x = x + token * call.x_stride;
        some.y =
            static_cast<std::byte*>(args.y.data) + token * grid.rows * static_cast<std::int64_t>(size_of(call.dtype));
        decode(some, line, line + 1);
      }
  });
}

}  // namespace filigree::cpu
