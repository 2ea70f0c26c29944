#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/selection/selection_cpu.cpp"
#include <hwy/foreach_target.h>
// After foreach_target, so that it is included once for each instruction set.
#include "core/parallel.h"
#include "kernels/selection/selection-inl.h"
#include "kernels/selection/selection.h"

// Bound by memory. compact reads 8 bytes an entry and writes the residual (4) and what is packed; a group of 1,024
// entries is one thread's, so that nobody shares a packed line except at its ends.

HWY_BEFORE_NAMESPACE();
namespace filigree::HWY_NAMESPACE {
namespace {

// Calls body(begin, end, group) with the entries of each group, on all threads.
template <typename Body>
void for_groups(std::int64_t count, const Body& body) {
  parallel_for(selection_groups(count), 16, [&](std::int64_t first, std::int64_t last) HWY_ATTR {
    for (std::int64_t group = first; group < last; ++group)
      body(group * kSelectionGroup, std::min(count, (group + 1) * kSelectionGroup), group);
  });
}

template <typename T>
void compact_one(const CompactArgs& args) {
  T* const packed = args.packed.as<T>();
  for_groups(args.chosen.count, [&](std::int64_t begin, std::int64_t end, std::int64_t group) HWY_ATTR {
    std::int64_t place = args.chosen.before[group];
    const std::int64_t last = args.chosen.before[group + 1];
    for_vectors(end - begin, [&](std::int64_t offset, auto part) HWY_ATTR {
      const std::int64_t i = begin + offset;
      const hn::Mask<FloatTag> chosen = lanes_chosen(args.chosen, i);
      const FloatVector gradient = load(args.gradient + i, part), residual = load(args.residual + i, part);
      const FloatVector both = hn::Add(residual, gradient);
      const auto count = static_cast<std::int64_t>(hn::CountTrue(FloatTag(), chosen));
      if (count > 0) {
        const FloatVector sent = hn::Compress(args.pass_residual ? both : gradient, chosen);
        if (place + kLanes <= last)
          store(sent, packed + place);  // lanes past `count` are overwritten by the next vector
        else
          store(sent, packed + place, Part{count});
        place += count;
      }
      store(args.pass_residual ? hn::IfThenZeroElse(chosen, both) : hn::IfThenElse(chosen, residual, both),
            args.residual + i, part);
      if (args.clear) store(splat(0.0f), args.gradient + i, part);
    });
  });
}

void compact_any(const CompactArgs& args) {
  with_compute_type(args.packed.dtype, [&]<typename T>() { compact_one<T>(args); });
}

void scatter_any(const ScatterArgs& args) {
  with_compute_type(args.packed.dtype, [&]<typename T>() {
    const T* const packed = args.packed.as<T>();
    for_groups(args.chosen.count, [&](std::int64_t begin, std::int64_t end, std::int64_t group) HWY_ATTR {
      std::fill(args.gradient + begin, args.gradient + end, 0.0f);
      for_chosen_of_group(args.chosen, group, [&](std::int64_t i, std::int64_t place) HWY_ATTR {
        args.gradient[begin + i] = static_cast<float>(packed[place]);
      });
    });
  });
}

void list_any(const IndicesArgs& args) {
  for_groups(args.chosen.count, [&](std::int64_t begin, std::int64_t, std::int64_t group) HWY_ATTR {
    for_chosen_of_group(args.chosen, group, [&](std::int64_t i, std::int64_t place) HWY_ATTR {
      args.indices[place] = static_cast<std::int32_t>(begin + i);
    });
  });
}

}  // namespace
}  // namespace filigree::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <bit>

namespace filigree {

HWY_EXPORT(compact_any);
HWY_EXPORT(scatter_any);
HWY_EXPORT(list_any);

void compact(Device& device, std::span<const CompactArgs> arrays) {
  if constexpr (kBuiltWithCuda)
    if (device.is_cuda()) return cuda::compact(device, arrays);
  for (const CompactArgs& args : arrays) HWY_DYNAMIC_DISPATCH(compact_any)(args);
}

void scatter(Device& device, std::span<const ScatterArgs> arrays) {
  if constexpr (kBuiltWithCuda)
    if (device.is_cuda()) return cuda::scatter(device, arrays);
  for (const ScatterArgs& args : arrays) HWY_DYNAMIC_DISPATCH(scatter_any)(args);
}

void list_indices(Device& device, std::span<const IndicesArgs> arrays) {
  if constexpr (kBuiltWithCuda)
    if (device.is_cuda()) return cuda::list_indices(device, arrays);
  for (const IndicesArgs& args : arrays) HWY_DYNAMIC_DISPATCH(list_any)(args);
}

void add_at(Device& device, float* y, const std::int32_t* indices, const Tensor& values) {
  if constexpr (kBuiltWithCuda)
    if (device.is_cuda()) return cuda::add_at(device, y, indices, values);
  with_compute_type(values.dtype, [&]<typename T>() {
    const T* const from = values.as<T>();
    parallel_for(values.count(), 4096, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t j = begin; j < end; ++j) y[indices[j]] += static_cast<float>(from[j]);
    });
  });
}

namespace {

SelectionMeasure measured(const MeasureArgs& args) {
  const std::int64_t count = args.chosen.count, groups = selection_groups(count);
  std::vector<SelectionMeasure> parts(static_cast<std::size_t>(groups));
  parallel_for(groups, 16, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t group = first; group < last; ++group) {
      SelectionMeasure& part = parts[static_cast<std::size_t>(group)];
      for (std::int64_t word = group * 32; word < (group + 1) * 32; ++word) {
        const std::uint32_t bits = args.chosen.bits[word];
        part.chosen += std::popcount(bits);
        if (!args.other.empty()) part.common += std::popcount(bits & args.other.bits[word]);
        if (!args.scores) continue;
        for (std::int64_t i = word * 32; i < std::min(count, word * 32 + 32); ++i) {
          const double square = static_cast<double>(args.scores[i]) * static_cast<double>(args.scores[i]);
          part.all_squares += square;
          if (bits >> (i % 32) & 1u) part.chosen_squares += square;
        }
      }
    }
  });
  SelectionMeasure total;
  for (const SelectionMeasure& part : parts) {
    total.chosen += part.chosen;
    total.common += part.common;
    total.chosen_squares += part.chosen_squares;
    total.all_squares += part.all_squares;
  }
  return total;
}

}  // namespace

std::vector<SelectionMeasure> measure(Device& device, std::span<const MeasureArgs> arrays) {
  if constexpr (kBuiltWithCuda)
    if (device.is_cuda()) return cuda::measure(device, arrays);
  std::vector<SelectionMeasure> result;
  for (const MeasureArgs& args : arrays) result.push_back(measured(args));
  return result;
}

std::uint64_t selection_hash(Device& device, std::span<const Selection> selections) {
  if constexpr (kBuiltWithCuda)
    if (device.is_cuda()) return cuda::selection_hash(device, selections);
  std::uint64_t hash = 0;
  for (std::size_t index = 0; index < selections.size(); ++index)
    for (std::int64_t word = 0; word < selection_words(selections[index].count); ++word)
      hash += hash_of_word(selections[index].bits[word], index, word);
  return hash;
}

}  // namespace filigree
#endif  // HWY_ONCE
