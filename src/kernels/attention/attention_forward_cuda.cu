// Our own forward pass, for what cuDNN does not take and for prompts against a cache: FlashAttention's recurrence on
// the ordinary fp32 units. A block owns 64 queries of one head and walks the keys up to the diagonal in order, so that
// two runs give the same bits.
//
// Bound by arithmetic: 4 · B · H · S² · D / 2 operations, on an H200 at some 20 to 30 of the 67 TFLOP/s of fp32, since
// each multiply-add takes half a word from shared memory.
#include "kernels/attention/attention_cuda.h"
#include "kernels/attention/attention_tile.cuh"

namespace filigree::cuda {
namespace {

// Query i of a sequence stands at position start + i and sees the keys up to there. Strides in elements.
template <typename T>
struct Forward {
  T* out;            // (B, queries, H·D)
  float* logsumexp;  // (B, H, queries), or null
  const T* query;    // (B, queries, H·D) of strides query_sequence, query_row
  const T* keys;     // (B, start + queries, G·D) of strides cache_sequence, cache_row
  const T* values;   // as keys
  std::int64_t queries, start;
  std::int64_t query_sequence, query_row;
  std::int64_t cache_sequence, cache_row;
  int heads, group, size;
  float factor;  // on q · k; scores are in base 2
};

template <int kSize>
constexpr int kForwardBytes = (2 * kTileFloats<kSize> + kWeightFloats) * static_cast<int>(sizeof(float));

template <int kSize, typename T>
__global__ void __launch_bounds__(kTileThreads) forward_kernel(const Forward<T> args) {
  extern __shared__ float4 shared[];
  float* const query = reinterpret_cast<float*>(shared);  // (64, kSize)
  float* const other = query + kTileFloats<kSize>;        // (64, kSize): keys, then values
  float* const weights = other + kTileFloats<kSize>;      // (64 keys, 64 queries)
  const int head = static_cast<int>(blockIdx.x) % args.heads;
  const std::int64_t sequence = blockIdx.x / args.heads;
  // The last queries see the most keys: they begin first.
  const std::int64_t first_query = static_cast<std::int64_t>(gridDim.y - 1 - blockIdx.y) * kTile;
  const std::int64_t kv_column = static_cast<std::int64_t>(head / args.group) * args.size;
  const T* const keys = args.keys + sequence * args.cache_sequence + kv_column;
  const T* const values = args.values + sequence * args.cache_sequence + kv_column;
  const std::int64_t all_keys = args.start + args.queries;
  const std::int64_t seen_keys = args.start + min(first_query + kTile, args.queries);

  load_tile<kSize>(query, args.query + sequence * args.query_sequence + static_cast<std::int64_t>(head) * args.size,
                   args.query_row, first_query, args.queries, args.size);
  float top[kTileRows], total[kTileRows], out[kTileRows][kSize / kTileLanes];
#pragma unroll
  for (int i = 0; i < kTileRows; ++i) {
    top[i] = -INFINITY;
    total[i] = 0.0f;
#pragma unroll
    for (int c = 0; c < kSize / kTileLanes; ++c) out[i][c] = 0.0f;
  }

  for (std::int64_t first_key = 0; first_key < seen_keys; first_key += kTile) {
    __syncthreads();  // the tile before is done with
    load_tile<kSize>(other, keys, args.cache_row, first_key, all_keys, args.size);
    __syncthreads();
    float scores[kTileRows][kTileColumns];
    dot_tile<kSize>(scores, query, other);
#pragma unroll
    for (int i = 0; i < kTileRows; ++i) {
      const std::int64_t position = args.start + first_query + kTileRows * tile_y() + i;
      float most = top[i];
#pragma unroll
      for (int j = 0; j < kTileColumns; ++j) {
        const std::int64_t key = first_key + tile_x() + j * kTileLanes;
        scores[i][j] = key <= position ? scores[i][j] * args.factor : -INFINITY;
        most = fmaxf(most, scores[i][j]);
      }
      most = row_max(most);  // finite: every position sees key 0
      float sum = 0.0f;
#pragma unroll
      for (int j = 0; j < kTileColumns; ++j) {
        scores[i][j] = exp2f(scores[i][j] - most);
        sum += scores[i][j];
      }
      const float correction = exp2f(top[i] - most);
      total[i] = total[i] * correction + row_sum(sum);
      top[i] = most;
#pragma unroll
      for (int c = 0; c < kSize / kTileLanes; ++c) out[i][c] *= correction;
    }
    store_transposed(weights, scores);
    __syncthreads();  // every thread has read the keys
    load_tile<kSize>(other, values, args.cache_row, first_key, all_keys, args.size);
    __syncthreads();
    accumulate_tile<kSize>(out, weights, other);
  }

  float inverse[kTileRows];
#pragma unroll
  for (int i = 0; i < kTileRows; ++i) {
    inverse[i] = 1.0f / total[i];
    const std::int64_t row = first_query + kTileRows * tile_y() + i;
    constexpr float kNaturalLog2 = 0.693147180559945f;
    if (args.logsumexp != nullptr && tile_x() == 0 && row < args.queries)
      args.logsumexp[(sequence * args.heads + head) * args.queries + row] = kNaturalLog2 * (top[i] + log2f(total[i]));
  }
  const std::int64_t out_row = static_cast<std::int64_t>(args.heads) * args.size;
  write_tile<kSize>(args.out + sequence * args.queries * out_row + static_cast<std::int64_t>(head) * args.size, out_row,
                    first_query, args.queries, args.size, out, inverse);
}

template <typename T>
void launch(Device& device, std::int64_t sequences, const Forward<T>& args) {
  with_tile_size(args.size, [&]<int kSize>() {
    const auto kernel = forward_kernel<kSize, T>;
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kForwardBytes<kSize>));
    const dim3 grid(static_cast<unsigned int>(sequences * args.heads), blocks_for(args.queries, kTile));
    kernel<<<grid, kTileThreads, kForwardBytes<kSize>, device.stream()>>>(args);
    check_launch();
  });
}

}  // namespace

void attention_forward_own(Device& device, const AttentionForwardArgs& args) {
  const AttentionShape shape = attention_shape(args.qkv, args.heads, args.kv_heads);
  with_device_type(args.qkv.dtype, [&]<typename T>() {
    const auto* qkv = static_cast<const T*>(args.qkv.data);
    launch<T>(device, shape.sequences,
              {.out = static_cast<T*>(args.out.data),
               .logsumexp = args.logsumexp.empty() ? nullptr : args.logsumexp.as<float>(),
               .query = qkv,
               .keys = qkv + shape.key(0),
               .values = qkv + shape.value(0),
               .queries = shape.positions,
               .start = 0,
               .query_sequence = shape.positions * shape.row(),
               .query_row = shape.row(),
               .cache_sequence = shape.positions * shape.row(),
               .cache_row = shape.row(),
               .heads = args.heads,
               .group = static_cast<int>(shape.group()),
               .size = static_cast<int>(shape.size),
               .factor = shape.score_factor()});
  });
}

void attention_cached_tiles(Device& device, const AttentionCachedArgs& args) {
  const AttentionShape shape = attention_shape(args.qkv, args.heads, args.kv_heads);
  const std::int64_t cache_row = shape.kv_heads * shape.size;
  with_device_type(args.qkv.dtype, [&]<typename T>() {
    launch<T>(device, shape.sequences,
              {.out = static_cast<T*>(args.out.data),
               .logsumexp = nullptr,
               .query = static_cast<const T*>(args.qkv.data),
               .keys = static_cast<const T*>(args.keys.data),
               .values = static_cast<const T*>(args.values.data),
               .queries = shape.positions,
               .start = args.start,
               .query_sequence = shape.positions * shape.row(),
               .query_row = shape.row(),
               .cache_sequence = args.keys.shape[1] * cache_row,
               .cache_row = cache_row,
               .heads = args.heads,
               .group = static_cast<int>(shape.group()),
               .size = static_cast<int>(shape.size),
               .factor = shape.score_factor()});
  });
}

}  // namespace filigree::cuda
