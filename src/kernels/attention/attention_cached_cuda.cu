// A few new queries against a cache, as in decoding: bound by reading keys and values once, 2 · B · n · G · D elements
// (n keys a sequence), for few sequences by the launches themselves. To fill the GPU with a single sequence, the cache
// is cut into chunks; a block takes a chunk of one key/value head for up to four query heads of its group, and a second
// kernel combines the chunks in order. Chunks depend on the shapes and the GPU's size alone: two runs give the same
// bits.
//
// Eight threads share a row of the cache, 16 bytes each at a time where alignment allows it: 128 bytes in a piece. With
// little to read time is latency: a thread asks for several rows at once, and for the first values before it has seen a
// key. New keys and values are read where the projection left them, and written to the cache on the way.
#include <algorithm>

#include "kernels/attention/attention_cuda.h"
#include "kernels/attention/attention_tile.cuh"

namespace filigree::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarp;
constexpr int kLanes = 8;                  // threads of a row of the cache
constexpr int kTeams = kThreads / kLanes;  // rows in work at once
constexpr int kHeadBatch = 4;              // query heads that share what a block reads
constexpr int kLeastChunk = 64, kMostChunk = 1024;

struct Chunks {
  int count = 1;
  int keys = kLeastChunk;  // of each but the last
};

// Enough blocks for four a multiprocessor, of at least 64 keys each: less does not pay for combining.
Chunks chunks_for(std::int64_t blocks, std::int64_t keys, int multiprocessors) {
  const std::int64_t wanted = (4 * static_cast<std::int64_t>(multiprocessors) + blocks - 1) / blocks;
  const std::int64_t each = std::clamp<std::int64_t>((keys + wanted - 1) / wanted, kLeastChunk, kMostChunk);
  const std::int64_t rounded = (each + kTeams - 1) / kTeams * kTeams;
  return {.count = static_cast<int>((keys + rounded - 1) / rounded), .keys = static_cast<int>(rounded)};
}

// A token is one of B · count new ones; it sees the keys up to its own position.
template <typename T>
struct Cached {
  T* out;          // (B, count, H·D)
  float* partial;  // (tokens, H, chunks, 2 + D): maximum, sum and unscaled output of a chunk
  const T* qkv;    // (B, count, H·D + 2 · G·D), rows `qkv_row` apart
  T* keys;         // (B, C, G·D); written from position `start` on, read before it
  T* values;
  std::int64_t context, start, positions, qkv_row, cache_row;
  int heads, kv_heads, size;
  Chunks chunks;
  float factor;  // on q · k; scores are in base 2

  __device__ int group() const { return heads / kv_heads; }
  __device__ float* part(std::int64_t token, int head, int chunk) const {
    return partial + ((token * heads + head) * chunks.count + chunk) * (2 + size);
  }
};

template <typename T, int kPack>
struct alignas(sizeof(T) * kPack) Entries {
  T values[kPack];
};

// A thread's part of the rows that it reads at once, one for each position in the chunk `kTeams` apart; zeros where
// there is none.
template <typename T, int kPack, int kSize>
struct Rows {
  static constexpr int kPieces = kSize / (kLanes * kPack);  // of a row, for each of its threads
  static constexpr int kRegisters = kPieces * ((kPack * static_cast<int>(sizeof(T)) + 3) / 4);  // of a row
  static constexpr int kCount = std::clamp(32 / kRegisters, 1, 4);
  Entries<T, kPack> pieces[kCount][kPieces];

  // `cached`: of the first position; from `fresh_from` on rows lie at `fresh`, `fresh_row` apart.
  __device__ __forceinline__ void load(const T* cached, std::int64_t cached_row, const T* fresh, std::int64_t fresh_row,
                                       std::int64_t fresh_from, int first, int count, int lane, int size) {
#pragma unroll
    for (int r = 0; r < kCount; ++r) {
      const int position = first + r * kTeams;
      const T* row =
          position < fresh_from ? cached + position * cached_row : fresh + (position - fresh_from) * fresh_row;
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece) {
        const int column = (piece * kLanes + lane) * kPack;
        pieces[r][piece] = {};
        if (position < count && column < size)
          pieces[r][piece] = *reinterpret_cast<const Entries<T, kPack>*>(row + column);
      }
    }
  }
  __device__ __forceinline__ void store(int r, T* row, int lane, int size) const {
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
      const int column = (piece * kLanes + lane) * kPack;
      if (column < size) *reinterpret_cast<Entries<T, kPack>*>(row + column) = pieces[r][piece];
    }
  }
};

// kHeads query heads at once; kPack entries of a row at once; kSize: D rounded up.
template <int kHeads, int kPack, int kSize, typename T>
__global__ void __launch_bounds__(kThreads) chunk_kernel(const Cached<T> args) {
  using Batch = Rows<T, kPack, kSize>;
  constexpr int kPieces = Batch::kPieces, kStride = Batch::kCount * kTeams;
  __shared__ float scores[kHeads][kMostChunk];
  __shared__ float sums[kWarps][kHeads][kSize];
  const int lane = static_cast<int>(threadIdx.x) % kLanes, team = static_cast<int>(threadIdx.x) / kLanes;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int batches = (args.group() + kHeads - 1) / kHeads;
  const std::int64_t token = blockIdx.x / (args.kv_heads * batches), sequence = token / args.positions;
  const int within = static_cast<int>(blockIdx.x % (args.kv_heads * batches));
  const int kv_head = within / batches, first_head = kv_head * args.group() + within % batches * kHeads;
  const int heads = min(kHeads, (kv_head + 1) * args.group() - first_head);
  const int chunk = static_cast<int>(blockIdx.y);
  const std::int64_t begin = static_cast<std::int64_t>(chunk) * args.chunks.keys;
  const std::int64_t position = args.start + token % args.positions;  // it sees itself and those before
  const int count =
      static_cast<int>(max(std::int64_t{0}, min(static_cast<std::int64_t>(args.chunks.keys), position + 1 - begin)));
  const std::int64_t column0 = static_cast<std::int64_t>(kv_head) * args.size;  // of the head, in a row of the cache
  const std::int64_t cache = (sequence * args.context + begin) * args.cache_row + column0;
  // New rows: in the chunk from `fresh_from` on, the first of them maybe before the chunk.
  const std::int64_t fresh_from = args.start - begin;
  const T* const fresh_keys =
      args.qkv + sequence * args.positions * args.qkv_row + static_cast<std::int64_t>(args.heads) * args.size + column0;
  const T* const fresh_values = fresh_keys + args.cache_row;
  Batch keys, values;
  keys.load(args.keys + cache, args.cache_row, fresh_keys, args.qkv_row, fresh_from, team, count, lane, args.size);
  values.load(args.values + cache, args.cache_row, fresh_values, args.qkv_row, fresh_from, team, count, lane,
              args.size);

  float query[kHeads][kPieces * kPack] = {};
#pragma unroll
  for (int h = 0; h < kHeads; ++h)
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
      const int column = (piece * kLanes + lane) * kPack;
      if (h >= heads || column >= args.size) continue;
      const auto entries = *reinterpret_cast<const Entries<T, kPack>*>(args.qkv + token * args.qkv_row +
                                                                       (first_head + h) * args.size + column);
#pragma unroll
      for (int e = 0; e < kPack; ++e) query[h][piece * kPack + e] = to_float(entries.values[e]);
    }
  // A new row goes to the cache from one thread block: that of its own token and position, and of the first of its
  // query heads. -1: none of this one's.
  const int mine =
      position < begin + args.chunks.keys && within % batches == 0 ? static_cast<int>(position - begin) : -1;

  for (int first = 0; first < count; first += kStride) {  // the same trips for all: the sums below need whole warps
    if (first > 0)
      keys.load(args.keys + cache, args.cache_row, fresh_keys, args.qkv_row, fresh_from, first + team, count, lane,
                args.size);
#pragma unroll
    for (int r = 0; r < Batch::kCount; ++r) {
      const int key = first + team + r * kTeams;
      if (key == mine) keys.store(r, args.keys + cache + key * args.cache_row, lane, args.size);
      float dots[kHeads] = {};
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece)
#pragma unroll
        for (int e = 0; e < kPack; ++e)
#pragma unroll
          for (int h = 0; h < kHeads; ++h)
            dots[h] += query[h][piece * kPack + e] * to_float(keys.pieces[r][piece].values[e]);
#pragma unroll
      for (int h = 0; h < kHeads; ++h) {
        for (int offset = kLanes / 2; offset > 0; offset /= 2) dots[h] += __shfl_xor_sync(0xffffffffu, dots[h], offset);
        if (lane == 0 && key < count) scores[h][key] = dots[h] * args.factor;
      }
    }
  }
  __syncthreads();

  // A warp a head. A chunk behind the token's position has no keys: its maximum is -infinity and its sums are 0.
  for (int h = warp; h < heads; h += kWarps) {
    float top = -INFINITY, sum = 0.0f;
    for (int key = static_cast<int>(threadIdx.x) % kWarp; key < count; key += kWarp) top = fmaxf(top, scores[h][key]);
    top = warp_max(top);
    for (int key = static_cast<int>(threadIdx.x) % kWarp; key < count; key += kWarp) {
      const float p = exp2f(scores[h][key] - top);
      scores[h][key] = p;
      sum += p;
    }
    sum = warp_sum(sum);
    if (threadIdx.x % kWarp == 0) {
      float* const part = args.part(token, first_head + h, chunk);
      part[0] = top;
      part[1] = sum;
    }
  }
  __syncthreads();

  float out[kHeads][kPieces * kPack] = {};
  for (int first = 0; first < count; first += kStride) {
    if (first > 0)
      values.load(args.values + cache, args.cache_row, fresh_values, args.qkv_row, fresh_from, first + team, count,
                  lane, args.size);
#pragma unroll
    for (int r = 0; r < Batch::kCount; ++r) {
      const int key = first + team + r * kTeams;
      if (key >= count) continue;
      if (key == mine) values.store(r, args.values + cache + key * args.cache_row, lane, args.size);
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece)
#pragma unroll
        for (int e = 0; e < kPack; ++e)
#pragma unroll
          for (int h = 0; h < kHeads; ++h)
            out[h][piece * kPack + e] += scores[h][key] * to_float(values.pieces[r][piece].values[e]);
    }
  }
  // Over the teams: of a warp by exchange, then over the warps.
#pragma unroll
  for (int h = 0; h < kHeads; ++h)
#pragma unroll
    for (int i = 0; i < kPieces * kPack; ++i) {
      for (int offset = kWarp / 2; offset >= kLanes; offset /= 2)
        out[h][i] += __shfl_xor_sync(0xffffffffu, out[h][i], offset);
      if (static_cast<int>(threadIdx.x) % kWarp < kLanes)
        sums[warp][h][(i / kPack * kLanes + lane) * kPack + i % kPack] = out[h][i];
    }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < heads * args.size; i += kThreads) {
    const int h = i / args.size, column = i % args.size;
    float sum = 0.0f;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) sum += sums[w][h][column];
    args.part(token, first_head + h, chunk)[2 + column] = sum;
  }
}

// A block for each token and head.
template <typename T>
__global__ void __launch_bounds__(kThreads) combine_kernel(const Cached<T> args) {
  let_next_begin();
  const std::int64_t token = blockIdx.x / args.heads;
  const int head = static_cast<int>(blockIdx.x % args.heads);
  float top = -INFINITY;
  for (int chunk = 0; chunk < args.chunks.count; ++chunk) top = fmaxf(top, args.part(token, head, chunk)[0]);
  for (int column = static_cast<int>(threadIdx.x); column < args.size; column += kThreads) {
    float total = 0.0f, sum = 0.0f;
    for (int chunk = 0; chunk < args.chunks.count; ++chunk) {
      const float* const part = args.part(token, head, chunk);
      const float weight = exp2f(part[0] - top);
      total += weight * part[1];
      sum += weight * part[2 + column];
    }
    args.out[blockIdx.x * static_cast<std::int64_t>(args.size) + column] = from_float<T>(sum / total);
  }
}

template <int kHeads, int kPack, typename T>
void launch_chunks(Device& device, const Cached<T>& args, std::int64_t blocks) {
  with_tile_size(args.size, [&]<int kSize>() {
    const dim3 grid(static_cast<unsigned int>(blocks), static_cast<unsigned int>(args.chunks.count));
    chunk_kernel<kHeads, kPack, kSize><<<grid, kThreads, 0, device.stream()>>>(args);
    check_launch();
  });
}

template <int kHeads, typename T>
void launch(Device& device, Cached<T> args, std::int64_t tokens) {
  const std::int64_t batches = (args.heads / args.kv_heads + kHeads - 1) / kHeads;
  const std::int64_t blocks = tokens * args.kv_heads * batches;
  args.chunks = chunks_for(blocks, args.start + args.positions, device.gpu().multiprocessors);
  const std::int64_t parts = tokens * args.heads * args.chunks.count * (2 + args.size);
  args.partial = static_cast<float*>(device.scratch(Scratch::kernel, static_cast<std::size_t>(parts) * sizeof(float)));
  constexpr int kPack = Pack<T>::kCount;
  const auto aligned = [](const void* data) { return reinterpret_cast<std::uintptr_t>(data) % 16 == 0; };
  if (args.size % kPack == 0 && aligned(args.qkv) && aligned(args.keys) && aligned(args.values))
    launch_chunks<kHeads, kPack>(device, args, blocks);
  else
    launch_chunks<kHeads, 1>(device, args, blocks);
  combine_kernel<<<static_cast<unsigned int>(tokens * args.heads), kThreads, 0, device.stream()>>>(args);
  check_launch();
}

}  // namespace

void attention_cached_few(Device& device, const AttentionCachedArgs& args) {
  const AttentionShape shape = attention_shape(args.qkv, args.heads, args.kv_heads);
  with_device_type(args.qkv.dtype, [&]<typename T>() {
    const Cached<T> cached = {.out = static_cast<T*>(args.out.data),
                              .partial = nullptr,
                              .qkv = static_cast<const T*>(args.qkv.data),
                              .keys = static_cast<T*>(args.keys.data),
                              .values = static_cast<T*>(args.values.data),
                              .context = args.keys.shape[1],
                              .start = args.start,
                              .positions = shape.positions,
                              .qkv_row = shape.row(),
                              .cache_row = shape.kv_heads * shape.size,
                              .heads = args.heads,
                              .kv_heads = args.kv_heads,
                              .size = static_cast<int>(shape.size),
                              .chunks = {},
                              .factor = shape.score_factor()};
    const std::int64_t tokens = shape.sequences * shape.positions;
    if (shape.group() == 1)
      launch<1>(device, cached, tokens);
    else
      launch<kHeadBatch>(device, cached, tokens);
  });
}

}  // namespace filigree::cuda
