// Vector parts of packing: expanding and compressing up to 64 columns of a row, and choosing rows of a column group.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/nm/nm_pack_vectors.cpp"
#include "kernels/nm/nm_highway.h"
// After the line above: foreach_target.h includes this file once more for each target.
#include "hwy/highway.h"
#include "kernels/nm/nm_expand-inl.h"
#include "kernels/nm/nm_vectors.h"

HWY_BEFORE_NAMESPACE();
namespace filigree {
namespace HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR
namespace {

constexpr unsigned kLaneBits = (1u << kLanes) - 1;

template <typename T>
int expand_of(float* out, std::uint64_t bits, int columns, const void* values, const void* end) {
  const T* from = static_cast<const T*>(values);
  for (int c = 0; c < columns; c += kLanes, bits >>= kLanes) {
    const unsigned here = static_cast<unsigned>(bits) & kLaneBits;
    hn::StoreU(expand_vector(load_values_before(from, static_cast<const T*>(end)), here), D(), out + c);
    from += std::popcount(here);
  }
  return static_cast<int>(from - static_cast<const T*>(values));
}

int expand(float* out, std::uint64_t bits, int columns, const void* values, const void* end, DType dtype) {
  return dtype == DType::f32 ? expand_of<float>(out, bits, columns, values, end)
                             : expand_of<bf16>(out, bits, columns, values, end);
}

int compress(float* out, std::uint64_t bits, int columns, const float* in) {
  const D d;
  float* to = out;
  for (int c = 0; c < columns; c += kLanes, bits >>= kLanes) {
    const std::uint8_t bytes[8] = {static_cast<std::uint8_t>(bits), static_cast<std::uint8_t>(bits >> 8)};
    // Whole vectors: what stands behind the kept values is overwritten by the next or lies in the room that out has.
    hn::StoreU(hn::Compress(hn::LoadU(d, in + c), hn::LoadMaskBits(d, bytes)), d, to);
    to += std::popcount(static_cast<unsigned>(bits) & kLaneBits);
  }
  return static_cast<int>(to - out);
}

// A row stays if fewer than `keep` others beat it: larger, or as large and above. Magnitudes are compared by their
// bits, a row not kept counts as -1. So rows not kept fill up from the top when too few are kept.
void select_rows(std::uint32_t* bits, const float* rows, const std::uint64_t* kept, int keep, int of) {
  const D d;
  const hn::Repartition<std::int32_t, D> di;
  using I = hn::Vec<decltype(di)>;
  const I one = hn::Set(di, 1);
  const I magnitude = hn::Set(di, 0x7fffffff);
  I key[32];
  for (int c = 0; c < 64; c += kLanes) {
    for (int i = 0; i < of; ++i) {
      const std::uint64_t here = kept[i] >> c;
      const std::uint8_t bytes[8] = {static_cast<std::uint8_t>(here), static_cast<std::uint8_t>(here >> 8)};
      const I value = hn::And(hn::BitCast(di, hn::LoadU(d, rows + i * 64 + c)), magnitude);
      key[i] = hn::IfThenElse(hn::LoadMaskBits(di, bytes), value, hn::Set(di, -1));
    }
    I chosen = hn::Zero(di);
    for (int i = 0; i < of; ++i) {
      I count = hn::Zero(di);  // rows that beat row i
      for (int j = 0; j < i; ++j) count = hn::Add(count, hn::IfThenZeroElse(hn::Lt(key[j], key[i]), one));
      for (int j = i + 1; j < of; ++j) count = hn::Add(count, hn::IfThenElseZero(hn::Gt(key[j], key[i]), one));
      chosen = hn::Or(chosen, hn::IfThenElseZero(hn::Lt(count, hn::Set(di, keep)),
                                                 hn::Set(di, static_cast<std::int32_t>(1u << i))));
    }
    hn::StoreU(hn::BitCast(hn::Repartition<std::uint32_t, D>(), chosen), hn::Repartition<std::uint32_t, D>(), bits + c);
  }
}

}  // namespace

const NmPackKernels& pack_kernels() {
  static constexpr NmPackKernels kernels = {expand, compress, select_rows};
  return kernels;
}

#endif
}  // namespace HWY_NAMESPACE
}  // namespace filigree
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace filigree {
const NmPackKernels& nm_pack_kernels(NmVectors vectors) {
  return FILIGREE_NM_SELECT(pack_kernels, vectors);
}
}  // namespace filigree
#endif
