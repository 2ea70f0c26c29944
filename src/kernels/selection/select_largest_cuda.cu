#include "kernels/selection/selection_cuda.cuh"

// The radix select of select_largest_cpu.cpp. For up to kArrays arrays at once: three rounds of a histogram (a block
// takes 16 groups and counts in shared memory) and of a block an array that picks the digit; then ties are counted,
// scanned and cut by index, and the bits written. 20 bytes read an entry; it runs once in gradients.interval steps.

namespace filigree::cuda {
namespace {

constexpr int kDigits = 2048;
constexpr int kGroupsOfBlock = 16;

struct Largest {
  const float* scores;
  std::uint32_t* bits;   // written: the largest entries, before they are widened
  std::int32_t* counts;  // (groups + 1): ties, then their sums
  Selection chosen;
  std::int64_t radius;
};

// What is known of an array's threshold.
struct Threshold {
  std::uint32_t key;
  std::int32_t ties;  // entries to keep among those that share the known bits
};

__device__ __forceinline__ std::uint32_t key_of(float score) {
  return __float_as_uint(score) & 0x7fffffffu;
}

__global__ __launch_bounds__(kSelectionThreads) void histogram_kernel(std::uint32_t* __restrict__ histograms,
                                                                      const Threshold* __restrict__ thresholds,
                                                                      const __grid_constant__ Batch<Largest> batch,
                                                                      int known, int bits) {
  __shared__ std::uint32_t own[kDigits];
  // A block may hold the end of one array and the beginning of the next: it takes one array after the other.
  const std::int32_t first = static_cast<std::int32_t>(blockIdx.x) * kGroupsOfBlock;
  const std::int32_t last = min(first + kGroupsOfBlock, batch.first_group[batch.count]);
  for (int array = 0; array < batch.count; ++array) {
    const std::int32_t from = max(first, batch.first_group[array]), to = min(last, batch.first_group[array + 1]);
    if (from >= to) continue;
    for (int digit = static_cast<int>(threadIdx.x); digit < kDigits; digit += kSelectionThreads) own[digit] = 0;
    __syncthreads();
    const Largest& args = batch.args[array];
    const std::uint32_t key_known = thresholds[array].key >> known;
    const std::int64_t begin = (from - batch.first_group[array]) * kSelectionGroup;
    const std::int64_t end = min((to - batch.first_group[array]) * kSelectionGroup, args.chosen.count);
    for (std::int64_t i = begin + threadIdx.x; i < end; i += kSelectionThreads) {
      const std::uint32_t key = key_of(args.scores[i]);
      if (key >> known == key_known) atomicAdd(&own[key >> (known - bits) & ((1u << bits) - 1u)], 1u);
    }
    __syncthreads();
    for (int digit = static_cast<int>(threadIdx.x); digit < kDigits; digit += kSelectionThreads)
      if (own[digit]) atomicAdd(&histograms[array * kDigits + digit], own[digit]);
    __syncthreads();
  }
}

// The digit at which, counted from the largest, the entries to keep end. Zeroes the histogram for the next round.
__global__ __launch_bounds__(kSelectionThreads) void pick_kernel(std::uint32_t* __restrict__ histograms,
                                                                 Threshold* __restrict__ thresholds, int shift) {
  constexpr int kEach = kDigits / kSelectionThreads;
  __shared__ std::uint32_t sums[kSelectionThreads];
  std::uint32_t* const histogram = histograms + static_cast<std::int64_t>(blockIdx.x) * kDigits;
  const int first = static_cast<int>(threadIdx.x) * kEach;
  std::uint32_t counts[kEach], sum = 0;
  for (int j = 0; j < kEach; ++j) sum += counts[j] = histogram[first + j];
  sums[threadIdx.x] = sum;
  const auto ties = static_cast<std::uint32_t>(thresholds[blockIdx.x].ties);
  __syncthreads();
  std::uint32_t above = 0;  // entries with a larger digit than this thread's
  for (int thread = static_cast<int>(threadIdx.x) + 1; thread < kSelectionThreads; ++thread) above += sums[thread];
  if (above < ties && above + sum >= ties) {
    for (int j = kEach - 1; j >= 0; --j) {
      if (above + counts[j] >= ties) {
        thresholds[blockIdx.x].key |= static_cast<std::uint32_t>(first + j) << shift;
        thresholds[blockIdx.x].ties = static_cast<std::int32_t>(ties - above);
        break;
      }
      above += counts[j];
    }
  }
  for (int j = 0; j < kEach; ++j) histogram[first + j] = 0;
}

__global__ __launch_bounds__(kSelectionThreads) void ties_kernel(const Threshold* __restrict__ thresholds,
                                                                 const __grid_constant__ Batch<Largest> batch) {
  Place place;
  if (!find_place(place, batch)) return;
  const Largest& args = batch.args[place.array];
  const std::uint32_t key = thresholds[place.array].key;
  int equal = 0;
  for (int word = 0; word < kWordsOfGroup; ++word) {
    const std::int64_t i = place.group * kSelectionGroup + word * 32 + lane_of_thread();
    equal += __popc(__ballot_sync(0xffffffffu, i < args.chosen.count && key_of(args.scores[i]) == key));
  }
  if (lane_of_thread() == 0) args.counts[place.group] = equal;
}

__global__ __launch_bounds__(kSelectionThreads) void bits_kernel(const Threshold* __restrict__ thresholds,
                                                                 const __grid_constant__ Batch<Largest> batch) {
  Place place;
  if (!find_place(place, batch)) return;
  const Largest& args = batch.args[place.array];
  const Threshold threshold = thresholds[place.array];
  const int lane = lane_of_thread();
  int left = threshold.ties - args.counts[place.group];  // ties that this group may still keep
  std::uint32_t own = 0;
  for (int word = 0; word < kWordsOfGroup; ++word) {
    const std::int64_t i = place.group * kSelectionGroup + word * 32 + lane;
    const std::uint32_t key = i < args.chosen.count ? key_of(args.scores[i]) : 0;
    const std::uint32_t equal = __ballot_sync(0xffffffffu, i < args.chosen.count && key == threshold.key);
    const bool kept = i < args.chosen.count &&
                      (key > threshold.key || (key == threshold.key && __popc(equal & ((1u << lane) - 1u)) < left));
    const std::uint32_t chosen = __ballot_sync(0xffffffffu, kept);
    left -= __popc(equal);
    if (lane == word) own = chosen;
  }
  args.bits[place.group * kWordsOfGroup + lane] = own;
}

// Bits [from, to) of the word that begins at entry `begin`.
__device__ __forceinline__ std::uint32_t bits_between(std::int64_t from, std::int64_t to, std::int64_t begin,
                                                      std::int64_t end) {
  from = max(from, begin), to = min(to, end);
  if (from >= to) return 0;
  return (to - from == 32 ? ~0u : (1u << (to - from)) - 1u) << (from - begin);
}

__device__ std::uint32_t widened(const std::uint32_t* centres, std::int64_t word, std::int64_t radius,
                                 std::int64_t count) {
  const std::int64_t begin = word * 32, end = min(count, begin + 32);
  if (begin >= end) return 0;
  std::uint32_t bits = 0;
  for (std::int64_t at = word - 1; at >= 0 && (at + 1) * 32 + radius > begin; --at)
    if (centres[at]) {
      bits |= bits_between(begin, at * 32 + 31 - __clz(static_cast<int>(centres[at])) + radius + 1, begin, end);
      break;
    }
  for (std::int64_t at = word + 1; at * 32 < count && at * 32 <= begin + 31 + radius; ++at)
    if (centres[at]) {
      bits |= bits_between(at * 32 + __ffs(static_cast<int>(centres[at])) - 1 - radius, end, begin, end);
      break;
    }
  for (std::uint32_t rest = centres[word]; rest; rest &= rest - 1) {
    const std::int64_t centre = begin + __ffs(static_cast<int>(rest)) - 1;
    bits |= bits_between(centre - radius, centre + radius + 1, begin, end);
  }
  return bits;
}

// The final bits, and how many each group has.
__global__ __launch_bounds__(kSelectionThreads) void count_kernel(const __grid_constant__ Batch<Largest> batch) {
  Place place;
  if (!find_place(place, batch)) return;
  const Largest& args = batch.args[place.array];
  const std::int64_t word = place.group * kWordsOfGroup + lane_of_thread();
  std::uint32_t bits = args.bits[word];
  if (args.radius > 0) {
    bits = widened(args.bits, word, args.radius, args.chosen.count);
    args.chosen.bits[word] = bits;
  }
  const int before = lanes_before(__popc(bits));
  if (lane_of_thread() == kWarp - 1) args.chosen.before[place.group] = before + __popc(bits);
}

// From each group's count to the sum of those before it; a block an array. ties: of `counts`, else of `before`.
__global__ __launch_bounds__(kSelectionThreads) void sum_before_kernel(const __grid_constant__ Batch<Largest> batch,
                                                                       bool ties) {
  __shared__ int sums[kWarpsOfBlock];
  const Largest& args = batch.args[blockIdx.x];
  std::int32_t* const counts = ties ? args.counts : args.chosen.before;
  const std::int64_t groups = batch.first_group[blockIdx.x + 1] - batch.first_group[blockIdx.x];
  int done = 0;
  for (std::int64_t first = 0; first < groups; first += kSelectionThreads) {
    const std::int64_t group = first + threadIdx.x;
    const int own = group < groups ? counts[group] : 0;
    int before = lanes_before(own);
    if (lane_of_thread() == kWarp - 1) sums[threadIdx.x / kWarp] = before + own;
    __syncthreads();
    int total = 0;
    for (int warp = 0; warp < kWarpsOfBlock; ++warp) {
      if (warp < static_cast<int>(threadIdx.x) / kWarp) before += sums[warp];
      total += sums[warp];
    }
    if (group < groups) counts[group] = done + before;
    done += total;
    __syncthreads();
  }
  if (threadIdx.x == 0) counts[groups] = done;
}

}  // namespace

void select_largest(Device& device, std::span<const LargestArgs> arrays) {
  for (std::size_t first = 0; first < arrays.size(); first += kArrays) {
    const auto part = arrays.subspan(first, std::min<std::size_t>(kArrays, arrays.size() - first));
    // Scratch memory: a histogram and a threshold each, then counts of ties and, with a radius, the centres' bits.
    std::int64_t words = static_cast<std::int64_t>(part.size()) * (kDigits + 2);
    for (const LargestArgs& args : part)
      words += selection_counts(args.chosen.count) + (args.radius > 0 ? selection_words(args.chosen.count) : 0);
    auto* const scratch =
        static_cast<std::uint32_t*>(device.scratch(Scratch::kernel, static_cast<std::size_t>(words) * 4));
    auto* const histograms = scratch;
    auto* const thresholds = reinterpret_cast<Threshold*>(scratch + part.size() * kDigits);
    std::uint32_t* free = scratch + part.size() * (kDigits + 2);
    std::vector<Largest> list;
    std::vector<Threshold> begin;
    for (const LargestArgs& args : part) {
      Largest entry = {.scores = args.scores,
                       .bits = args.chosen.bits,
                       .counts = reinterpret_cast<std::int32_t*>(free),
                       .chosen = args.chosen,
                       .radius = args.radius};
      free += selection_counts(args.chosen.count);
      if (args.radius > 0) {
        entry.bits = free;
        free += selection_words(args.chosen.count);
      }
      list.push_back(entry);
      begin.push_back({.key = 0, .ties = static_cast<std::int32_t>(args.keep)});
    }
    CUstream_st* const stream = device.stream();
    check(cudaMemsetAsync(histograms, 0, part.size() * kDigits * 4, stream));
    device.copy_from_host({thresholds, DType::u8, {static_cast<std::int64_t>(begin.size() * sizeof(Threshold))}},
                          begin.data());
    for_batches(
        std::span<const Largest>(list), [](const Largest& args) { return args.chosen.count; },
        [&](const Batch<Largest>& batch, unsigned int blocks) {
          const auto arrays_of_batch = static_cast<unsigned int>(batch.count);
          int known = 31;
          for (const int bits : {11, 10, 10}) {
            histogram_kernel<<<blocks_for(batch.first_group[batch.count], kGroupsOfBlock), kSelectionThreads, 0,
                               stream>>>(histograms, thresholds, batch, known, bits);
            known -= bits;
            pick_kernel<<<arrays_of_batch, kSelectionThreads, 0, stream>>>(histograms, thresholds, known);
          }
          ties_kernel<<<blocks, kSelectionThreads, 0, stream>>>(thresholds, batch);
          sum_before_kernel<<<arrays_of_batch, kSelectionThreads, 0, stream>>>(batch, true);
          bits_kernel<<<blocks, kSelectionThreads, 0, stream>>>(thresholds, batch);
          count_kernel<<<blocks, kSelectionThreads, 0, stream>>>(batch);
          sum_before_kernel<<<arrays_of_batch, kSelectionThreads, 0, stream>>>(batch, false);
        });
  }
}

}  // namespace filigree::cuda
