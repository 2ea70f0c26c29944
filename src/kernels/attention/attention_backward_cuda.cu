// Our own backward pass, for what cuDNN does not take. Three kernels and no atomics, so that two runs give the same
// bits: delta; then one block for 64 keys of a key/value head, which gathers dk and dv over the later queries of the
// head's group; then one block for 64 queries of a head, which gathers dq over the earlier keys. The scores are
// recomputed in both: 14 instead of 10 · B · H · S² · D / 2 operations, bound by the fp32 units as the forward pass.
//
//   P = exp(S - logsumexp)   dP = dO Vᵀ   dS = P (dP - delta)   delta = sum over a row of dO · O
//   dV = Pᵀ dO   dK = dSᵀ Q / sqrt(D)   dQ = dS K / sqrt(D)
#include <numbers>

#include "kernels/attention/attention_cuda.h"
#include "kernels/attention/attention_tile.cuh"

namespace filigree::cuda {
namespace {

template <typename T>
struct Backward {
  T* dqkv;                 // (B, S, row)
  const T* dout;           // (B, S, H·D)
  const T* qkv;            // (B, S, row)
  const float* logsumexp;  // (B, H, S)
  const float* delta;      // (B, H, S)
  std::int64_t positions, row;
  int heads, kv_heads, size;
  float factor;   // on q · k; scores are in base 2
  float inverse;  // 1 / sqrt(D)

  __device__ int group() const { return heads / kv_heads; }
  __device__ std::int64_t out_row() const { return static_cast<std::int64_t>(heads) * size; }
  // Where in qkv or dqkv a head of a sequence begins.
  __device__ std::int64_t query(std::int64_t sequence, int head) const {
    return sequence * positions * row + static_cast<std::int64_t>(head) * size;
  }
  __device__ std::int64_t key(std::int64_t sequence, int kv_head) const { return query(sequence, heads + kv_head); }
  __device__ std::int64_t value(std::int64_t sequence, int kv_head) const {
    return query(sequence, heads + kv_heads + kv_head);
  }
};

template <int kSize>
constexpr int kBackwardBytes = (3 * kTileFloats<kSize> + kWeightFloats) * static_cast<int>(sizeof(float));

constexpr float kLog2E = std::numbers::log2e_v<float>;
constexpr int kDeltaThreads = 256;

// delta (B, H, S), one warp each.
template <typename T>
__global__ void delta_kernel(float* __restrict__ delta, const T* __restrict__ dout, const T* __restrict__ out,
                             std::int64_t rows, std::int64_t positions, int heads, int size) {
  const std::int64_t row = (static_cast<std::int64_t>(blockIdx.x) * kDeltaThreads + threadIdx.x) / kWarp;  // (B, S, H)
  if (row >= rows) return;
  float sum = 0.0f;
  for (int d = static_cast<int>(threadIdx.x) % kWarp; d < size; d += kWarp)
    sum += to_float(dout[row * size + d]) * to_float(out[row * size + d]);
  sum = warp_sum(sum);
  if (threadIdx.x % kWarp != 0) return;
  const std::int64_t token = row / heads, head = row % heads;
  delta[((token / positions) * heads + head) * positions + token % positions] = sum;
}

template <int kColumns>
__device__ __forceinline__ void clear(float (&sums)[kTileRows][kColumns]) {
#pragma unroll
  for (int i = 0; i < kTileRows; ++i)
#pragma unroll
    for (int c = 0; c < kColumns; ++c) sums[i][c] = 0.0f;
}

// Rows are keys, columns queries.
template <int kSize, typename T>
__global__ void __launch_bounds__(kTileThreads) key_gradient_kernel(const Backward<T> args) {
  extern __shared__ float4 shared[];
  float* const keys = reinterpret_cast<float*>(shared);  // (64, kSize)
  float* const values = keys + kTileFloats<kSize>;       // (64, kSize)
  float* const other = values + kTileFloats<kSize>;      // (64, kSize): queries or dout
  float* const weights = other + kTileFloats<kSize>;     // (64 queries, 64 keys)
  const int kv_head = static_cast<int>(blockIdx.x) % args.kv_heads;
  const std::int64_t sequence = blockIdx.x / args.kv_heads;
  const std::int64_t first_key = static_cast<std::int64_t>(blockIdx.y) * kTile;
  const std::int64_t key_at = args.key(sequence, kv_head), value_at = args.value(sequence, kv_head);
  load_tile<kSize>(keys, args.qkv + key_at, args.row, first_key, args.positions, args.size);
  load_tile<kSize>(values, args.qkv + value_at, args.row, first_key, args.positions, args.size);
  float dkeys[kTileRows][kSize / kTileLanes], dvalues[kTileRows][kSize / kTileLanes];
  clear(dkeys);
  clear(dvalues);

  for (int head = kv_head * args.group(); head < (kv_head + 1) * args.group(); ++head) {
    const T* const query = args.qkv + args.query(sequence, head);
    const T* const dout =
        args.dout + sequence * args.positions * args.out_row() + static_cast<std::int64_t>(head) * args.size;
    const std::int64_t statistics = (sequence * args.heads + head) * args.positions;
    for (std::int64_t first_query = first_key; first_query < args.positions; first_query += kTile) {
      __syncthreads();  // the tile before is done with
      load_tile<kSize>(other, query, args.row, first_query, args.positions, args.size);
      __syncthreads();
      float p[kTileRows][kTileColumns], ds[kTileRows][kTileColumns], delta[kTileColumns];
      dot_tile<kSize>(p, keys, other);
#pragma unroll
      for (int j = 0; j < kTileColumns; ++j) {
        const std::int64_t position = first_query + tile_x() + j * kTileLanes;
        const bool inside = position < args.positions;
        const float top = inside ? args.logsumexp[statistics + position] * kLog2E : 0.0f;
        delta[j] = inside ? args.delta[statistics + position] : 0.0f;
#pragma unroll
        for (int i = 0; i < kTileRows; ++i) {
          const bool seen = inside && first_key + kTileRows * tile_y() + i <= position;
          p[i][j] = seen ? exp2f(p[i][j] * args.factor - top) : 0.0f;
        }
      }
      __syncthreads();  // every thread has read the queries
      load_tile<kSize>(other, dout, args.out_row(), first_query, args.positions, args.size);
      store_transposed(weights, p);
      __syncthreads();
      accumulate_tile<kSize>(dvalues, weights, other);
      dot_tile<kSize>(ds, values, other);
#pragma unroll
      for (int i = 0; i < kTileRows; ++i)
#pragma unroll
        for (int j = 0; j < kTileColumns; ++j) ds[i][j] = p[i][j] * (ds[i][j] - delta[j]);
      __syncthreads();  // every thread has read dout and P
      load_tile<kSize>(other, query, args.row, first_query, args.positions, args.size);
      store_transposed(weights, ds);
      __syncthreads();
      accumulate_tile<kSize>(dkeys, weights, other);
    }
  }

  const float one[kTileRows] = {1.0f, 1.0f, 1.0f, 1.0f};
  const float inverse[kTileRows] = {args.inverse, args.inverse, args.inverse, args.inverse};
  write_tile<kSize>(args.dqkv + value_at, args.row, first_key, args.positions, args.size, dvalues, one);
  write_tile<kSize>(args.dqkv + key_at, args.row, first_key, args.positions, args.size, dkeys, inverse);
}

// Rows are queries, columns keys.
template <int kSize, typename T>
__global__ void __launch_bounds__(kTileThreads) query_gradient_kernel(const Backward<T> args) {
  extern __shared__ float4 shared[];
  float* const query = reinterpret_cast<float*>(shared);  // (64, kSize)
  float* const dout = query + kTileFloats<kSize>;         // (64, kSize)
  float* const other = dout + kTileFloats<kSize>;         // (64, kSize): values, then keys
  float* const weights = other + kTileFloats<kSize>;      // (64 keys, 64 queries)
  const int head = static_cast<int>(blockIdx.x) % args.heads;
  const std::int64_t sequence = blockIdx.x / args.heads;
  const std::int64_t first_query = static_cast<std::int64_t>(gridDim.y - 1 - blockIdx.y) * kTile;
  const std::int64_t query_at = args.query(sequence, head);
  const T* const keys = args.qkv + args.key(sequence, head / args.group());
  const T* const values = args.qkv + args.value(sequence, head / args.group());
  load_tile<kSize>(query, args.qkv + query_at, args.row, first_query, args.positions, args.size);
  load_tile<kSize>(dout,
                   args.dout + sequence * args.positions * args.out_row() + static_cast<std::int64_t>(head) * args.size,
                   args.out_row(), first_query, args.positions, args.size);
  float top[kTileRows], delta[kTileRows], dquery[kTileRows][kSize / kTileLanes];
  clear(dquery);
#pragma unroll
  for (int i = 0; i < kTileRows; ++i) {
    const std::int64_t position = first_query + kTileRows * tile_y() + i;
    const std::int64_t at = (sequence * args.heads + head) * args.positions + position;
    const bool inside = position < args.positions;
    top[i] = inside ? args.logsumexp[at] * kLog2E : 0.0f;
    delta[i] = inside ? args.delta[at] : 0.0f;
  }

  const std::int64_t seen_keys = min(first_query + kTile, args.positions);
  for (std::int64_t first_key = 0; first_key < seen_keys; first_key += kTile) {
    float p[kTileRows][kTileColumns], ds[kTileRows][kTileColumns];
    __syncthreads();  // the tile before is done with
    load_tile<kSize>(other, values, args.row, first_key, args.positions, args.size);
    __syncthreads();
    dot_tile<kSize>(ds, dout, other);
    __syncthreads();  // every thread has read the values
    load_tile<kSize>(other, keys, args.row, first_key, args.positions, args.size);
    __syncthreads();
    dot_tile<kSize>(p, query, other);
#pragma unroll
    for (int i = 0; i < kTileRows; ++i) {
      const std::int64_t position = first_query + kTileRows * tile_y() + i;
#pragma unroll
      for (int j = 0; j < kTileColumns; ++j) {
        const bool seen = position < args.positions && first_key + tile_x() + j * kTileLanes <= position;
        ds[i][j] = seen ? exp2f(p[i][j] * args.factor - top[i]) * (ds[i][j] - delta[i]) : 0.0f;
      }
    }
    store_transposed(weights, ds);
    __syncthreads();
    accumulate_tile<kSize>(dquery, weights, other);
  }

  const float inverse[kTileRows] = {args.inverse, args.inverse, args.inverse, args.inverse};
  write_tile<kSize>(args.dqkv + query_at, args.row, first_query, args.positions, args.size, dquery, inverse);
}

template <typename Kernel, typename T>
void launch(Device& device, Kernel kernel, int bytes, std::int64_t heads, const Backward<T>& args) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  const dim3 grid(static_cast<unsigned int>(heads), blocks_for(args.positions, kTile));
  kernel<<<grid, kTileThreads, bytes, device.stream()>>>(args);
  check_launch();
}

}  // namespace

void attention_backward_own(Device& device, const AttentionBackwardArgs& args) {
  const AttentionShape shape = attention_shape(args.qkv, args.heads, args.kv_heads);
  const std::int64_t rows = shape.sequences * shape.positions * shape.heads;
  auto* delta = static_cast<float*>(device.scratch(Scratch::kernel, static_cast<std::size_t>(rows) * sizeof(float)));
  with_device_type(args.qkv.dtype, [&]<typename T>() {
    delta_kernel<<<blocks_for(rows, kDeltaThreads / kWarp), kDeltaThreads, 0, device.stream()>>>(
        delta, static_cast<const T*>(args.dout.data), static_cast<const T*>(args.out.data), rows, shape.positions,
        args.heads, static_cast<int>(shape.size));
    check_launch();
    const Backward<T> backward = {.dqkv = static_cast<T*>(args.dqkv.data),
                                  .dout = static_cast<const T*>(args.dout.data),
                                  .qkv = static_cast<const T*>(args.qkv.data),
                                  .logsumexp = args.logsumexp.as<float>(),
                                  .delta = delta,
                                  .positions = shape.positions,
                                  .row = shape.row(),
                                  .heads = args.heads,
                                  .kv_heads = args.kv_heads,
                                  .size = static_cast<int>(shape.size),
                                  .factor = shape.score_factor(),
                                  .inverse = 1.0f / std::sqrt(static_cast<float>(shape.size))};
    with_tile_size(shape.size, [&]<int kSize>() {
      launch(device, key_gradient_kernel<kSize, T>, kBackwardBytes<kSize>, shape.sequences * shape.kv_heads, backward);
      launch(device, query_gradient_kernel<kSize, T>, kBackwardBytes<kSize>, shape.sequences * shape.heads, backward);
    });
  });
}

}  // namespace filigree::cuda
