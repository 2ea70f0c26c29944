#include "kernels/selection/selection_cuda.cuh"

// Bound by memory: compact reads 8 bytes an entry and writes 4 of a waiting one and what is packed.

namespace filigree::cuda {
namespace {

// Element `place` of a packed array.
__device__ __forceinline__ float packed_value(const void* packed, bool is_bf16, int place) {
  return is_bf16 ? to_float(static_cast<const __nv_bfloat16*>(packed)[place])
                 : static_cast<const float*>(packed)[place];
}
__device__ __forceinline__ void store_packed(void* packed, bool is_bf16, int place, float value) {
  if (is_bf16)
    static_cast<__nv_bfloat16*>(packed)[place] = __float2bfloat16_rn(value);
  else
    static_cast<float*>(packed)[place] = value;
}

// Tensor has no place on a device.
struct Compact {
  void* packed;
  float* gradient;
  float* residual;
  Selection chosen;
  bool is_bf16, pass_residual, clear;
};
struct Scatter {
  float* gradient;
  const void* packed;
  Selection chosen;
  bool is_bf16;
};
struct Indices {
  std::int32_t* indices;
  Selection chosen;
};

__global__ __launch_bounds__(kSelectionThreads) void compact_kernel(const __grid_constant__ Batch<Compact> batch) {
  Place place;
  if (!find_place(place, batch)) return;
  const Compact& args = batch.args[place.array];
  for_group(args.chosen, place.group, [&](std::int64_t i, bool chosen, int at) {
    const float gradient = args.gradient[i];
    if (chosen) {
      float sent = gradient;
      if (args.pass_residual) {
        sent = __fadd_rn(args.residual[i], gradient);
        args.residual[i] = 0.0f;
      }
      store_packed(args.packed, args.is_bf16, at, sent);
    } else {
      args.residual[i] = __fadd_rn(args.residual[i], gradient);
    }
    if (args.clear) args.gradient[i] = 0.0f;
  });
}

__global__ __launch_bounds__(kSelectionThreads) void scatter_kernel(const __grid_constant__ Batch<Scatter> batch) {
  Place place;
  if (!find_place(place, batch)) return;
  const Scatter& args = batch.args[place.array];
  for_group(args.chosen, place.group, [&](std::int64_t i, bool chosen, int at) {
    args.gradient[i] = chosen ? packed_value(args.packed, args.is_bf16, at) : 0.0f;
  });
}

__global__ __launch_bounds__(kSelectionThreads) void indices_kernel(const __grid_constant__ Batch<Indices> batch) {
  Place place;
  if (!find_place(place, batch)) return;
  const Indices& args = batch.args[place.array];
  for_group(args.chosen, place.group, [&](std::int64_t i, bool chosen, int at) {
    if (chosen) args.indices[at] = static_cast<std::int32_t>(i);
  });
}

__global__ __launch_bounds__(kSelectionThreads) void add_at_kernel(float* y, const std::int32_t* __restrict__ indices,
                                                                   const void* __restrict__ values, bool is_bf16,
                                                                   std::int64_t count) {
  const std::int64_t j = static_cast<std::int64_t>(blockIdx.x) * kSelectionThreads + threadIdx.x;
  if (j < count) y[indices[j]] += packed_value(values, is_bf16, static_cast<int>(j));
}

struct Sums {
  double chosen, common, chosen_squares, all_squares;
};

__device__ double sum_of_block(double value) {
  __shared__ double sums[kSelectionThreads];
  __syncthreads();
  sums[threadIdx.x] = value;
  for (int width = kSelectionThreads / 2; width > 0; width /= 2) {
    __syncthreads();
    if (threadIdx.x < width) sums[threadIdx.x] += sums[threadIdx.x + width];
  }
  __syncthreads();
  return sums[0];
}

// A block an array, in a fixed order. It runs a few times between two selections.
__global__ __launch_bounds__(kSelectionThreads) void measure_kernel(Sums* __restrict__ results,
                                                                    const __grid_constant__ Batch<MeasureArgs> batch) {
  const MeasureArgs& args = batch.args[blockIdx.x];
  Sums own{};
  for (std::int64_t i = threadIdx.x; i < args.chosen.count; i += kSelectionThreads) {
    const bool chosen = (args.chosen.bits[i / 32] >> (i % 32) & 1u) != 0;
    const bool other = args.other.bits && (args.other.bits[i / 32] >> (i % 32) & 1u) != 0;
    const double score = args.scores ? static_cast<double>(args.scores[i]) : 0.0;
    own.chosen += chosen;
    own.common += chosen && other;
    own.all_squares += score * score;
    if (chosen) own.chosen_squares += score * score;
  }
  const Sums total = {sum_of_block(own.chosen), sum_of_block(own.common), sum_of_block(own.chosen_squares),
                      sum_of_block(own.all_squares)};
  if (threadIdx.x == 0) results[blockIdx.x] = total;
}

struct Hashed {
  Selection selection;
  std::uint64_t number;
};

// The sum of whole numbers does not depend on its order.
__global__ __launch_bounds__(kSelectionThreads) void hash_kernel(unsigned long long* __restrict__ hash,
                                                                 const __grid_constant__ Batch<Hashed> batch) {
  Place place;
  if (!find_place(place, batch)) return;
  const Hashed& args = batch.args[place.array];
  const std::int64_t word = place.group * kWordsOfGroup + lane_of_thread();
  std::uint64_t sum = hash_of_word(args.selection.bits[word], args.number, word);
  for (int offset = kWarp / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  if (lane_of_thread() == 0) atomicAdd(hash, static_cast<unsigned long long>(sum));
}

}  // namespace

// -------------------------------------------------------------------------------------------------------- launchers

void compact(Device& device, std::span<const CompactArgs> arrays) {
  std::vector<Compact> list;
  for (const CompactArgs& args : arrays)
    list.push_back({.packed = args.packed.data,
                    .gradient = args.gradient,
                    .residual = args.residual,
                    .chosen = args.chosen,
                    .is_bf16 = args.packed.dtype == DType::bf16,
                    .pass_residual = args.pass_residual,
                    .clear = args.clear});
  for_batches(
      std::span<const Compact>(list), [](const Compact& args) { return args.chosen.count; },
      [&](const Batch<Compact>& batch, unsigned int blocks) {
        compact_kernel<<<blocks, kSelectionThreads, 0, device.stream()>>>(batch);
      });
}

void scatter(Device& device, std::span<const ScatterArgs> arrays) {
  std::vector<Scatter> list;
  for (const ScatterArgs& args : arrays)
    list.push_back({.gradient = args.gradient,
                    .packed = args.packed.data,
                    .chosen = args.chosen,
                    .is_bf16 = args.packed.dtype == DType::bf16});
  for_batches(
      std::span<const Scatter>(list), [](const Scatter& args) { return args.chosen.count; },
      [&](const Batch<Scatter>& batch, unsigned int blocks) {
        scatter_kernel<<<blocks, kSelectionThreads, 0, device.stream()>>>(batch);
      });
}

void list_indices(Device& device, std::span<const IndicesArgs> arrays) {
  std::vector<Indices> list;
  for (const IndicesArgs& args : arrays) list.push_back({.indices = args.indices, .chosen = args.chosen});
  for_batches(
      std::span<const Indices>(list), [](const Indices& args) { return args.chosen.count; },
      [&](const Batch<Indices>& batch, unsigned int blocks) {
        indices_kernel<<<blocks, kSelectionThreads, 0, device.stream()>>>(batch);
      });
}

void add_at(Device& device, float* y, const std::int32_t* indices, const Tensor& values) {
  if (values.count() == 0) return;
  add_at_kernel<<<blocks_for(values.count(), kSelectionThreads), kSelectionThreads, 0, device.stream()>>>(
      y, indices, values.data, values.dtype == DType::bf16, values.count());
  check_launch();
}

std::vector<SelectionMeasure> measure(Device& device, std::span<const MeasureArgs> arrays) {
  std::vector<SelectionMeasure> measures;
  if (arrays.empty()) return measures;
  const auto bytes = static_cast<std::int64_t>(arrays.size() * sizeof(Sums));
  auto* results = static_cast<Sums*>(device.scratch(Scratch::kernel, static_cast<std::size_t>(bytes)));
  std::size_t done = 0;
  for_batches(
      arrays, [](const MeasureArgs& args) { return args.chosen.count; },
      [&](const Batch<MeasureArgs>& batch, unsigned int) {
        measure_kernel<<<static_cast<unsigned int>(batch.count), kSelectionThreads, 0, device.stream()>>>(
            results + done, batch);
        done += static_cast<std::size_t>(batch.count);
      });
  std::vector<Sums> sums(arrays.size());
  device.copy_to_host(sums.data(), {results, DType::u8, {bytes}});
  for (const Sums& sum : sums)
    measures.push_back({.chosen = static_cast<std::int64_t>(sum.chosen),
                        .common = static_cast<std::int64_t>(sum.common),
                        .chosen_squares = sum.chosen_squares,
                        .all_squares = sum.all_squares});
  return measures;
}

std::uint64_t selection_hash(Device& device, std::span<const Selection> selections) {
  auto* sum = static_cast<unsigned long long*>(device.scratch(Scratch::kernel, sizeof(unsigned long long)));
  check(cudaMemsetAsync(sum, 0, sizeof *sum, device.stream()));
  std::vector<Hashed> list;
  for (const Selection& selection : selections) list.push_back({.selection = selection, .number = list.size()});
  for_batches(
      std::span<const Hashed>(list), [](const Hashed& args) { return args.selection.count; },
      [&](const Batch<Hashed>& batch, unsigned int blocks) {
        hash_kernel<<<blocks, kSelectionThreads, 0, device.stream()>>>(sum, batch);
      });
  std::uint64_t hash = 0;
  device.copy_to_host(&hash, {sum, DType::u8, {static_cast<std::int64_t>(sizeof hash)}});
  return hash;
}

}  // namespace filigree::cuda
