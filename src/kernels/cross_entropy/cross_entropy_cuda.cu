#include <cfloat>

#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/cuda_vector.cuh"

// Bound by memory: a row is read once and written once. One block a row: the largest logit and the sum of exponentials
// in one pass, in which each thread keeps the packs that it read in shared memory, and from there the gradient in a
// second one. What of a row does not fit there (more than 110 KB: fp32 logits of a large vocabulary) is read again,
// from the second-level cache. Two blocks fit a multiprocessor, so that one reads while the other writes. Two
// exponentials an element keep the special function units half busy at the full speed of the memory (H200, bf16).
//
// A row of odd width begins at any address: the elements before the first whole pack and after the last one are taken
// one by one, by the first threads.

namespace filigree::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / kWarp;
constexpr int kUnroll = 4;                  // packs that a thread has on their way from memory
constexpr std::size_t kStage = 110 * 1024;  // bytes of a row in shared memory: half a multiprocessor's, rounded down

__device__ __forceinline__ float exponential(float x) {
  return exponential2(x * kLog2E);
}

// The sum of exp(x - top) over the values so far, top the largest of them. It begins above minus infinity, so that
// logits of minus infinity are zeros and no difference of infinities appears.
struct Running {
  float top = -FLT_MAX, sum = 0.0f;

  template <int kCount>
  __device__ __forceinline__ void include(const Floats<kCount>& x) {
    float largest = x.values[0];
#pragma unroll
    for (int i = 1; i < kCount; ++i) largest = fmaxf(largest, x.values[i]);
    if (largest > top) {
      sum *= exponential(top - largest);
      top = largest;
    }
    float terms[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) terms[i] = exponential(x.values[i] - top);
#pragma unroll
    for (int width = kCount / 2; width > 0; width /= 2)
#pragma unroll
      for (int i = 0; i < width; ++i) terms[i] += terms[i + width];
    sum += terms[0];
  }
};

// ----------------------------------------------------------------------------------------------------------- kernel

template <typename T>
__global__ __launch_bounds__(kThreads, 2) void cross_entropy_kernel(float* __restrict__ loss,  // (T)
                                                                    T* logits,                 // (T, stride)
                                                                    const std::int32_t* __restrict__ targets,  // (T)
                                                                    std::int32_t* __restrict__ greedy,  // (T) or null
                                                                    std::int64_t vocabulary, std::int64_t stride,
                                                                    float scale, bool loss_only, int staged) {
  constexpr int kEach = kPack<T>;
  extern __shared__ uint4 shared[];
  auto* const stage = reinterpret_cast<Packed<kEach, T>*>(shared);  // (staged): each thread its own packs
  __shared__ float tops[kWarps], sums[kWarps];
  const auto thread = static_cast<int>(threadIdx.x);
  T* row = logits + blockIdx.x * stride;
  const std::int64_t target = targets[blockIdx.x];

  const auto past = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(row) / sizeof(T) % kEach);
  const std::int64_t head = min((kEach - past) % kEach, vocabulary);
  T* const middle = row + head;  // whole packs
  const auto packs = static_cast<int>((vocabulary - head) / kEach);
  const std::int64_t tail = vocabulary - head - static_cast<std::int64_t>(packs) * kEach;
  // The element that this thread takes alone, if any.
  const bool alone = thread < head + tail;
  const std::int64_t single = thread < head ? thread : vocabulary - tail + (thread - head);

  if (!loss_only)
    for (std::int64_t spare = vocabulary + thread; spare < stride; spare += kThreads) row[spare] = from_float<T>(0.0f);
  if (target < 0) {
    if (thread == 0) loss[blockIdx.x] = 0.0f;
    if (thread == 0 && greedy) greedy[blockIdx.x] = 0;
    if (loss_only) return;
    if (alone) row[single] = from_float<T>(0.0f);
    for (int index = thread; index < packs; index += kThreads) store(middle + index * kEach, Floats<kEach>{});
    return;
  }
  // Read before any thread writes the row: a barrier follows.
  const float chosen = target < vocabulary ? to_float(row[target]) : __int_as_float(0x7fffffff);

  Running running;
  if (alone) running.include(load<1>(row + single));
  for (int first = thread; first < packs; first += kUnroll * kThreads) {
    Packed<kEach, T> loaded[kUnroll];
#pragma unroll
    for (int i = 0; i < kUnroll; ++i)
      if (first + i * kThreads < packs) loaded[i] = load_packed<kEach>(middle + (first + i * kThreads) * kEach);
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      const int index = first + i * kThreads;
      if (index >= packs) break;
      running.include(unpack(loaded[i]));
      if (index < staged) stage[index] = loaded[i];
    }
  }

  const float warp_top = warp_max(running.top);
  if (thread % kWarp == 0) tops[thread / kWarp] = warp_top;
  __syncthreads();
  float top = tops[0];
  for (int warp = 1; warp < kWarps; ++warp) top = fmaxf(top, tops[warp]);
  const float total = block_sum<kThreads>(running.sum * exponential(running.top - top), sums);
  if (thread == 0) loss[blockIdx.x] = logf(total) + (top - chosen);
  if (thread == 0 && greedy) greedy[blockIdx.x] = chosen >= top ? 1 : 0;
  if (loss_only) return;

  const float factor = scale / total;
  const auto gradient = [&](float logit) { return exponential(logit - top) * factor; };
  // The target's own entry again from the logit, in one rounding: (p - 1) · scale.
  const float at_target = (exponential(chosen - top) / total - 1.0f) * scale;
  if (alone) row[single] = from_float<T>(single == target ? at_target : gradient(to_float(row[single])));
  for (int index = thread; index < packs; index += kThreads) {
    T* const to = middle + index * kEach;
    Floats<kEach> x;
    if (index < staged)
      x = unpack(stage[index]);
    else
      x = load<kEach>(to);
#pragma unroll
    for (int i = 0; i < kEach; ++i) x.values[i] = gradient(x.values[i]);
    store(to, x);
  }
  // By the thread that has just stored the target's pack. The compiler must leave its stores in this order, although
  // their types differ.
  asm volatile("" ::: "memory");
  const std::int64_t pack = (target - head) / kEach;
  if (target >= head && pack < packs && pack % kThreads == thread) row[target] = from_float<T>(at_target);
}

}  // namespace

// --------------------------------------------------------------------------------------------------------- launcher

void cross_entropy(Device& device, const CrossEntropyArgs& args) {
  const std::int64_t tokens = args.loss.count(), vocabulary = args.vocabulary;
  require(vocabulary <= std::numeric_limits<std::int32_t>::max(), "cross_entropy: vocabulary too large");
  with_device_type(args.logits.dtype, [&]<typename T>() {
    const std::size_t row = static_cast<std::size_t>(vocabulary) * sizeof(T) / sizeof(uint4);
    const std::size_t staged = args.loss_only ? 0 : std::min(row, kStage / sizeof(uint4));
    check(cudaFuncSetAttribute(cross_entropy_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(kStage)));
    check(cudaFuncSetAttribute(cross_entropy_kernel<T>, cudaFuncAttributePreferredSharedMemoryCarveout,
                               cudaSharedmemCarveoutMaxShared));
    cross_entropy_kernel<T><<<static_cast<unsigned int>(tokens), kThreads, staged * sizeof(uint4), device.stream()>>>(
        args.loss.as<float>(), static_cast<T*>(args.logits.data), args.targets.as<std::int32_t>(),
        args.greedy.empty() ? nullptr : args.greedy.as<std::int32_t>(), vocabulary, args.logits.shape[1], args.scale,
        args.loss_only, static_cast<int>(staged));
  });
  check_launch();
}

}  // namespace filigree::cuda
