#include "kernels/cuda_vector.cuh"
#include "kernels/embedding/embedding.h"
#include "kernels/embedding/sort_tokens_cuda.h"

// Bound by memory. Forward: a warp a token copies its row. Backward without atomics: tokens are sorted, which brings
// the gradients of each table row together in their order, and a warp walks over 32 of them. A run of equal tokens that
// lies within one such segment goes to the table at once, in the same order of additions as on the processor; where a
// segment cuts a run, the pieces are stored and a second launch adds them in order. However often a token occurs, no
// warp walks further than its segment.

namespace filigree::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kEach = 8;         // channels of a lane
constexpr int kSegment = kWarp;  // sorted tokens of a warp: a lane holds one
constexpr int kUnroll = 4;       // gradients that a lane has on their way from memory

// ---------------------------------------------------------------------------------------------------------- kernels

// kWide: channels of a lane at once, 8 or 1.
template <int kWide, typename T>
__global__ __launch_bounds__(kThreads) void forward_kernel(
    T* __restrict__ y,                        // (B, S, C)
    const std::int32_t* __restrict__ tokens,  // (B, S)
    const T* __restrict__ table,              // (V, C)
    const T* __restrict__ places,             // (S, C) from `start` on, or null
    std::int64_t count, std::int64_t positions, std::int64_t channels) {
  const std::int64_t t = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  if (t >= count) return;
  const T* row = table + tokens[t] * channels;
  const T* place = places ? places + t % positions * channels : nullptr;
#pragma unroll 4
  for (std::int64_t i = threadIdx.x % kWarp * kWide; i < channels; i += kWarp * kWide) {
    Floats<kWide> values = load<kWide>(row + i);
    if (place) {
      const Floats<kWide> added = load<kWide>(place + i);
#pragma unroll
      for (int j = 0; j < kWide; ++j) values.values[j] += added.values[j];
    }
    store(y + t * channels + i, values);
  }
}

// The channels of one lane: kEach neighbours where rows are whole packs, otherwise one of each warp's width.
template <bool kVectors>
struct Channels {
  std::int64_t first, count;  // of the lane, and of a row

  __device__ explicit Channels(std::int64_t tile, std::int64_t channels)
      : first(tile * kWarp * kEach + threadIdx.x % kWarp * (kVectors ? kEach : 1)), count(channels) {}
  __device__ __forceinline__ bool inside(int i) const { return kVectors ? first < count : first + i * kWarp < count; }

  // The lane's channels of a row; zeros outside.
  template <typename T>
  __device__ __forceinline__ Floats<kEach> read(const T* row) const {
    Floats<kEach> values = {};
    if constexpr (kVectors) {
      if (inside(0)) values = load<kEach>(row + first);
    } else {
#pragma unroll
      for (int i = 0; i < kEach; ++i)
        if (inside(i)) values.values[i] = to_float(row[first + i * kWarp]);
    }
    return values;
  }
  __device__ __forceinline__ void write(float* row, const Floats<kEach>& values) const {
    if constexpr (kVectors) {
      if (inside(0)) store(row + first, values);
    } else {
#pragma unroll
      for (int i = 0; i < kEach; ++i)
        if (inside(i)) row[first + i * kWarp] = values.values[i];
    }
  }
};

__device__ __forceinline__ void add_to(Floats<kEach>& sum, const Floats<kEach>& values) {
#pragma unroll
  for (int i = 0; i < kEach; ++i) sum.values[i] += values.values[i];
}

struct Sorted {
  const std::int32_t* tokens;  // (count) ascending
  const std::int32_t* places;  // (count) the row of dy
  std::int64_t count, segments;
};

// Where runs begin and end among the 32 sorted tokens of a segment, as bits. Every lane knows its own token.
struct Segment {
  std::int64_t first;
  int length;
  std::int32_t token;
  unsigned int begins, ends;

  __device__ Segment(const Sorted& sorted, std::int64_t segment) : first(segment * kSegment) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const std::int64_t i = first + lane;
    length = static_cast<int>(min(static_cast<std::int64_t>(kSegment), sorted.count - first));
    token = lane < length ? sorted.tokens[i] : -1;
    const std::int32_t before = lane < length && i > 0 ? sorted.tokens[i - 1] : -1;
    const std::int32_t after = lane < length && i + 1 < sorted.count ? sorted.tokens[i + 1] : -1;
    begins = __ballot_sync(0xffffffffu, lane < length && before != token);
    ends = __ballot_sync(0xffffffffu, lane < length && after != token);
  }
};

// A block is kWarps segments of one tile of channels. partial (segments, 2, C): the sum of the piece that a segment
// begins with, and of the one that it ends with, of runs that are not whole in it.
template <bool kVectors, typename T>
__global__ __launch_bounds__(kThreads) void table_kernel(float* dtable,             // (V, C)
                                                         float* partial,            // (segments, 2, C)
                                                         const T* __restrict__ dy,  // (B S, C)
                                                         const Sorted sorted, std::int64_t channels) {
  const std::int64_t segment = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  if (segment >= sorted.segments) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const Channels<kVectors> mine(blockIdx.y, channels);
  const Segment within(sorted, segment);
  const std::int32_t place = lane < within.length ? sorted.places[within.first + lane] : 0;
  Floats<kEach> sum = {};
  bool begins_here = false;  // the piece at hand begins inside the segment, not at its first token
  bool whole = false;        // it is a whole run
  for (int base = 0; base < within.length; base += kUnroll) {
    Floats<kEach> gradients[kUnroll];
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      const int at = base + i;
      const std::int64_t from = __shfl_sync(0xffffffffu, place, at);
      if (at < within.length) gradients[i] = mine.read(dy + from * channels);
    }
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      const int at = base + i;
      if (at >= within.length) break;
      float* const row = dtable + __shfl_sync(0xffffffffu, within.token, at) * channels;
      if (at == 0 || (within.begins >> at & 1u)) {
        begins_here = at > 0;
        whole = (within.begins >> at & 1u) && within.ends >> at != 0;
        sum = {};
        if (whole) sum = mine.read(row);
      }
      add_to(sum, gradients[i]);
      const bool ends = within.ends >> at & 1u;
      if (!ends && at + 1 < within.length) continue;
      mine.write(whole ? row : partial + (2 * segment + (begins_here ? 1 : 0)) * channels, sum);
    }
  }
}

// The runs that segments cut: the warp of the segment where one begins adds its pieces.
template <bool kVectors>
__global__ __launch_bounds__(kThreads) void cut_runs_kernel(float* dtable,                      // (V, C)
                                                            const float* __restrict__ partial,  // (segments, 2, C)
                                                            const Sorted sorted, std::int64_t channels) {
  const std::int64_t segment = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  if (segment >= sorted.segments) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const Channels<kVectors> mine(blockIdx.y, channels);
  const Segment within(sorted, segment);
  // The last run goes on past the segment, and begins in it.
  if (within.ends >> (within.length - 1) & 1u || within.begins == 0) return;
  const std::int32_t token = __shfl_sync(0xffffffffu, within.token, within.length - 1);
  const int begin = kWarp - 1 - __clz(static_cast<int>(within.begins));
  float* const row = dtable + token * channels;
  Floats<kEach> sum = mine.read(row);
  add_to(sum, mine.read(partial + (2 * segment + (begin > 0 ? 1 : 0)) * channels));
  // The segments that follow with the same token in front hold one piece each, their first.
  for (std::int64_t next = segment + 1; next < sorted.segments; next += kWarp) {
    const bool same = next + lane < sorted.segments && sorted.tokens[(next + lane) * kSegment] == token;
    const int pieces = __popc(__ballot_sync(0xffffffffu, same));  // tokens ascend: no gaps
#pragma unroll 4
    for (int piece = 0; piece < pieces; ++piece) add_to(sum, mine.read(partial + 2 * (next + piece) * channels));
    if (pieces < kWarp) break;
  }
  mine.write(row, sum);
}

// A warp a position and tile of channels: over the sequences in order.
template <bool kVectors, typename T>
__global__ __launch_bounds__(kThreads) void places_kernel(float* dplaces,            // (S, C)
                                                          const T* __restrict__ dy,  // (B, S, C)
                                                          std::int64_t sequences, std::int64_t positions,
                                                          std::int64_t channels) {
  const std::int64_t position = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  if (position >= positions) return;
  const Channels<kVectors> mine(blockIdx.y, channels);
  Floats<kEach> sum = mine.read(dplaces + position * channels);
#pragma unroll 8
  for (std::int64_t sequence = 0; sequence < sequences; ++sequence)
    add_to(sum, mine.read(dy + (sequence * positions + position) * channels));
  mine.write(dplaces + position * channels, sum);
}

// -------------------------------------------------------------------------------------------------------- launchers

template <bool kVectors, typename T>
void backward(Device& device, const EmbeddingBackwardArgs& args) {
  const std::int64_t count = args.tokens.count(), positions = args.tokens.shape[1];
  const std::int64_t vocabulary = args.dtable.shape[0], channels = args.dtable.shape[1];
  const std::int64_t segments = (count + kSegment - 1) / kSegment;
  const auto* dy = static_cast<const T*>(args.dy.data);
  const auto aligned_bytes = [](std::int64_t bytes) { return (bytes + 255) / 256 * 256; };
  const std::int64_t list = aligned_bytes(count * static_cast<std::int64_t>(sizeof(std::int32_t)));
  const std::int64_t sums = aligned_bytes(segments * 2 * channels * static_cast<std::int64_t>(sizeof(float)));
  auto* scratch = static_cast<std::byte*>(device.scratch(
      Scratch::kernel, static_cast<std::size_t>(2 * list + sums) + sort_tokens_bytes(count, vocabulary)));
  auto* tokens = reinterpret_cast<std::int32_t*>(scratch);
  auto* places = reinterpret_cast<std::int32_t*>(scratch + list);
  auto* partial = reinterpret_cast<float*>(scratch + 2 * list);
  sort_tokens(tokens, places, args.tokens.as<std::int32_t>(), count, vocabulary, scratch + 2 * list + sums,
              device.stream());
  const Sorted sorted = {.tokens = tokens, .places = places, .count = count, .segments = segments};
  auto* dtable = args.dtable.as<float>();
  const unsigned int tiles = blocks_for(channels, kWarp * kEach);
  const dim3 grid(blocks_for(segments, kWarps), tiles);
  table_kernel<kVectors><<<grid, kThreads, 0, device.stream()>>>(dtable, partial, dy, sorted, channels);
  check_launch();
  cut_runs_kernel<kVectors><<<grid, kThreads, 0, device.stream()>>>(dtable, partial, sorted, channels);
  check_launch();
  if (args.dpositions.empty()) return;
  places_kernel<kVectors><<<dim3(blocks_for(positions, kWarps), tiles), kThreads, 0, device.stream()>>>(
      args.dpositions.as<float>(), dy, count / positions, positions, channels);
  check_launch();
}

}  // namespace

void embedding_forward(Device& device, const EmbeddingForwardArgs& args) {
  const std::int64_t channels = args.table.shape[1], count = args.tokens.count();
  with_device_type(args.table.dtype, [&]<typename T>() {
    auto* y = static_cast<T*>(args.y.data);
    const auto* table = static_cast<const T*>(args.table.data);
    const T* places =
        args.positions.empty() ? nullptr : static_cast<const T*>(args.positions.data) + args.start * channels;
    const auto launch = [&](auto kernel) {
      kernel<<<blocks_for(count, kWarps), kThreads, 0, device.stream()>>>(
          y, args.tokens.as<std::int32_t>(), table, places, count, args.tokens.shape[1], channels);
    };
    if (channels % kEach == 0 && aligned({y, table, places}))
      launch(forward_kernel<kEach, T>);
    else
      launch(forward_kernel<1, T>);
  });
  check_launch();
}

void embedding_backward(Device& device, const EmbeddingBackwardArgs& args) {
  require(args.tokens.count() <= std::numeric_limits<std::int32_t>::max(), "embedding: more tokens than can be sorted");
  const std::int64_t channels = args.dtable.shape[1];
  const bool vectors = channels % kEach == 0 && aligned({args.dtable.data, args.dpositions.data, args.dy.data});
  with_device_type(args.dy.dtype,
                   [&]<typename T>() { vectors ? backward<true, T>(device, args) : backward<false, T>(device, args); });
}

}  // namespace filigree::cuda
