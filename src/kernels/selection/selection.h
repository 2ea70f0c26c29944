// Which entries of an array travel between ranks, and what becomes of them and of the others. Gradient exchanges
// (Radius, random-k, top-k) are made of these.
//
// A Selection holds one bit an entry and, for each group of 1,024 entries, how many were chosen before it: n/8 + n/256
// bytes for n entries, where a list of indices would take 4 bytes a chosen entry. The place of a chosen entry among the
// packed ones follows from the count before its group and the bits between.
//
// All functions take a list, give the same bits for any thread count, allocate nothing but scratch memory, and return
// before a GPU is done unless they return a result.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/device.h"
#include "core/tensor.h"

namespace filigree {

inline constexpr std::int64_t kSelectionGroup = 1024;
constexpr std::int64_t selection_groups(std::int64_t count) {
  return (count + kSelectionGroup - 1) / kSelectionGroup;
}
// Lengths of a Selection's arrays.
constexpr std::int64_t selection_words(std::int64_t count) {
  return selection_groups(count) * (kSelectionGroup / 32);
}
constexpr std::int64_t selection_counts(std::int64_t count) {
  return selection_groups(count) + 1;
}

struct Selection {
  std::uint32_t* bits = nullptr;   // (selection_words): entry i is bit i % 32 of word i / 32; 0 past the end
  std::int32_t* before = nullptr;  // (selection_counts): chosen entries before each group; the last: of all
  std::int64_t count = 0;          // entries, below 2^31

  bool empty() const { return bits == nullptr; }
};

// The `keep` entries of largest |score|, exactly; of equal ones those with lower indices. NaN counts as larger than
// infinity. With a radius r each of them is a centre, and chosen are all entries at most r away from one, clipped to
// the array.
struct LargestArgs {
  Selection chosen = {};          // written
  const float* scores = nullptr;  // (count)
  std::int64_t keep = 0;          // 1 to count
  std::int64_t radius = 0;
};
void select_largest(Device& device, std::span<const LargestArgs> arrays);

// Splits gradients into what travels and what waits. Of a chosen entry
//   packed = gradient (+ residual, which becomes 0, when `pass_residual`)
// and of another
//   residual = residual + gradient
// clear: the gradient becomes 0 everywhere.
struct CompactArgs {
  Tensor packed = {};         // (chosen entries) fp32 or bf16
  float* gradient = nullptr;  // (count); written when `clear`
  float* residual = nullptr;  // (count)
  Selection chosen = {};
  bool pass_residual = false;
  bool clear = false;
};
void compact(Device& device, std::span<const CompactArgs> arrays);

// gradient = packed where chosen, 0 elsewhere.
struct ScatterArgs {
  float* gradient = nullptr;  // (count)
  Tensor packed = {};         // (chosen entries) fp32 or bf16
  Selection chosen = {};
};
void scatter(Device& device, std::span<const ScatterArgs> arrays);

// The indices of the chosen entries, ascending.
struct IndicesArgs {
  std::int32_t* indices = nullptr;  // (chosen entries)
  Selection chosen = {};
};
void list_indices(Device& device, std::span<const IndicesArgs> arrays);
// y[indices[j]] += values[j]; indices differ from each other.
void add_at(Device& device, float* y, const std::int32_t* indices, const Tensor& values);

// What a Selection is worth, for the report.
struct SelectionMeasure {
  std::int64_t chosen = 0;
  std::int64_t common = 0;      // chosen in `other` too
  double chosen_squares = 0.0;  // sum of the chosen scores' squares
  double all_squares = 0.0;     // of all
};
struct MeasureArgs {
  Selection chosen = {};
  Selection other = {};           // may be empty
  const float* scores = nullptr;  // (count); may be null
};
// The host waits for a GPU.
std::vector<SelectionMeasure> measure(Device& device, std::span<const MeasureArgs> arrays);
// One word's share of a hash, which is their sum: the words can be taken in any order.
constexpr std::uint64_t hash_of_word(std::uint32_t bits, std::uint64_t selection, std::int64_t word) {
  std::uint64_t x = (selection + 1) * 0x9E3779B97F4A7C15u + static_cast<std::uint64_t>(word);
  for (const std::uint64_t more : {std::uint64_t{0}, std::uint64_t{bits}}) {
    x ^= more;  // the finalizer of SplitMix64, twice
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    x ^= x >> 31;
  }
  return x;
}
// 64 bits that depend on every bit of every Selection, in this order. The host waits for a GPU.
std::uint64_t selection_hash(Device& device, std::span<const Selection> selections);

namespace cuda {  // the same on a GPU; called by the functions above
void select_largest(Device& device, std::span<const LargestArgs> arrays);
void compact(Device& device, std::span<const CompactArgs> arrays);
void scatter(Device& device, std::span<const ScatterArgs> arrays);
void list_indices(Device& device, std::span<const IndicesArgs> arrays);
void add_at(Device& device, float* y, const std::int32_t* indices, const Tensor& values);
std::vector<SelectionMeasure> measure(Device& device, std::span<const MeasureArgs> arrays);
std::uint64_t selection_hash(Device& device, std::span<const Selection> selections);
}  // namespace cuda

}  // namespace filigree
