#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cross_entropy/cross_entropy_cpu.cpp"
#include <hwy/foreach_target.h>
// After foreach_target, so that it is included once for each instruction set.
#include <cmath>
#include <limits>

#include "core/parallel.h"
#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/vector-inl.h"

// Three passes over a row, which fits in a core's second-level cache (V = 50257: 200 KB in fp32): largest logit, sum of
// exponentials, gradient. The exponential is computed twice rather than stored, because bf16 logits leave no room for
// it.

HWY_BEFORE_NAMESPACE();
namespace filigree::HWY_NAMESPACE {
namespace {

template <typename T>
float largest(const T* row, std::int64_t count) {
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  FloatVector top = splat(kLowest);
  for_vectors(count, [&](std::int64_t i, auto part) HWY_ATTR { top = hn::Max(top, load(row + i, part, kLowest)); });
  return hn::GetLane(hn::MaxOfLanes(FloatTag(), top));
}

template <typename T>
void rows_of(const CrossEntropyArgs& args) {
  float* loss = args.loss.as<float>();                                            // (T)
  T* logits = args.logits.as<T>();                                                // (T, stride)
  const auto* targets = args.targets.as<std::int32_t>();                          // (T)
  auto* greedy = args.greedy.empty() ? nullptr : args.greedy.as<std::int32_t>();  // (T)
  const std::int64_t vocabulary = args.vocabulary, stride = args.logits.shape[1];
  parallel_for(args.loss.count(), 1, [&](std::int64_t begin, std::int64_t end) HWY_ATTR {
    for (std::int64_t t = begin; t < end; ++t) {
      T* row = logits + t * stride;
      const std::int64_t target = targets[t];
      if (!args.loss_only) std::fill(row + (target < 0 ? 0 : vocabulary), row + stride, T(0.0f));
      if (target < 0) {
        loss[t] = 0.0f;
        if (greedy) greedy[t] = 0;
        continue;
      }
      const FloatVector top = splat(largest(row, vocabulary));
      const float sum = sum_vectors(vocabulary, [&](std::int64_t i, auto part) HWY_ATTR {
        return keep(exponential(hn::Sub(load(row + i, part), top)), part);
      });
      const auto chosen = static_cast<float>(row[target]);
      loss[t] = std::log(sum) + (hn::GetLane(top) - chosen);
      if (greedy) greedy[t] = chosen >= hn::GetLane(top) ? 1 : 0;
      if (args.loss_only) continue;
      const FloatVector factor = splat(args.scale / sum);
      for_vectors(vocabulary, [&](std::int64_t i, auto part) HWY_ATTR {
        store(hn::Mul(exponential(hn::Sub(load(row + i, part), top)), factor), row + i, part);
      });
      // The target's own entry again from the logit, in one rounding: (p - 1) · scale.
      const float probability = hn::GetLane(exponential(splat(chosen - hn::GetLane(top)))) / sum;
      row[target] = T((probability - 1.0f) * args.scale);
    }
  });
}

void rows_of_any(const CrossEntropyArgs& args) {
  with_compute_type(args.logits.dtype, [&]<typename T>() { rows_of<T>(args); });
}

}  // namespace
}  // namespace filigree::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace filigree {

HWY_EXPORT(rows_of_any);

void cross_entropy(Device& device, const CrossEntropyArgs& given) {
  CrossEntropyArgs args = given;
  if (args.vocabulary == 0) args.vocabulary = args.logits.shape[1];
  const std::int64_t tokens = args.loss.count();
  require(args.vocabulary <= args.logits.shape[1], "cross_entropy: the logits have fewer columns than the vocabulary");
  require(args.targets.count() == tokens && args.logits.shape.rank() == 2 && args.logits.shape[0] == tokens,
          "cross_entropy: loss, logits and targets do not fit each other");
  require(args.greedy.empty() || args.greedy.count() == tokens, "cross_entropy: greedy does not fit the loss");
  if (tokens == 0) return;
  if constexpr (kBuiltWithCuda)
    if (device.is_cuda()) return cuda::cross_entropy(device, args);
  const std::int64_t vocabulary = args.vocabulary;
  const auto* targets = args.targets.as<std::int32_t>();
  for (std::int64_t t = 0; t < tokens; ++t)
    if (targets[t] >= vocabulary)
      throw Error("cross_entropy: target " + std::to_string(targets[t]) + " of token " + std::to_string(t) +
                  " lies outside the vocabulary of " + std::to_string(vocabulary));
  HWY_DYNAMIC_DISPATCH(rows_of_any)(args);
}

}  // namespace filigree
#endif  // HWY_ONCE
