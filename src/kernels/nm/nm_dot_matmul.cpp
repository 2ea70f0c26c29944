#include "kernels/nm/nm_dot_matmul.h"

#include "core/parallel.h"
#include "kernels/nm/nm_views.h"

namespace filigree {
namespace {

constexpr std::int64_t kBlockColumns = 128;  // a tile of 16 KB, which stays in L1 while a chunk of tokens passes
constexpr std::int64_t kChunkTokens = 480;   // at most: their sums and inputs of a block are a quarter of L2
constexpr std::int64_t kStepTokens = 6;
constexpr std::int64_t kTileBytes = kBlockColumns / 4 * NmDotTile::kGroupBytes;
constexpr std::int64_t kSumBytes = kChunkTokens * kNmDotRows * 4;

}  // namespace

void nm_dot_matmul(Device& device, const NmMatmulArgs& args) {
  const auto& kernels = nm_dot_forward_kernels();
  const NmMatrix& weight = args.weight;
  const std::int64_t tokens = args.x.shape[0];
  // Chunks of about equal length, whole steps, and enough of them for all threads where tiles are few.
  const std::int64_t tiles = (weight.rows + kNmDotRows - 1) / kNmDotRows;
  std::int64_t chunks = (tokens + kChunkTokens - 1) / kChunkTokens;
  if (tiles < device.threads()) chunks = std::max(chunks, (device.threads() + tiles - 1) / tiles);
  const std::int64_t steps = (tokens + kStepTokens - 1) / kStepTokens;
  const std::int64_t chunk = (steps + chunks - 1) / chunks * kStepTokens;
  chunks = (tokens + chunk - 1) / chunk;

  const std::int64_t bytes = kTileBytes + kSumBytes;
  auto* memory =
      static_cast<std::byte*>(device.scratch(Scratch::kernel, static_cast<std::size_t>(device.threads() * bytes)));
  // Chunk after chunk, so that all weights pass once for each while its inputs stay near.
  parallel_for(chunks * tiles, 1, [&](std::int64_t begin, std::int64_t end) {
    std::byte* own = memory + omp_get_thread_num() * bytes;
    const NmDotTile tile = {own};
    auto* sums = reinterpret_cast<float*>(own + kTileBytes);
    for (std::int64_t item = begin; item < end; ++item) {
      const std::int64_t token = item / tiles * chunk, row = item % tiles * kNmDotRows;
      NmDotInputs in;
      in.stride = weight.columns;
      in.tokens = std::min(chunk, tokens - token);
      if (weight.columns == 0) std::fill_n(sums, in.tokens * kNmDotRows, 0.0f);
      for (std::int64_t column = 0; column < weight.columns; column += kBlockColumns) {
        in.x = args.x.as<bf16>() + token * in.stride + column;
        in.columns = std::min(kBlockColumns, weight.columns - column);
        in.first = column == 0;
        kernels.spread(tile, block_of(weight, row, kNmDotRows, column, in.columns));
        kernels.multiply(sums, tile, in);
      }
      kernels.store(store_of(args, token, row), sums, in.tokens, std::min<std::int64_t>(kNmDotRows, weight.rows - row));
    }
  });
}

}  // namespace filigree
