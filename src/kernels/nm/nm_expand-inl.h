// Expanding values to the places of set bits, one vector at a time. Included inside each Highway target.
#if defined(FILIGREE_NM_EXPAND_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef FILIGREE_NM_EXPAND_INL
#undef FILIGREE_NM_EXPAND_INL
#else
#define FILIGREE_NM_EXPAND_INL
#endif

#include <array>

#include "hwy/highway.h"
#include "kernels/nm/nm_vectors.h"

HWY_BEFORE_NAMESPACE();
namespace filigree {
namespace HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::CappedTag<float, 16>;
using V = hn::Vec<D>;
constexpr int kLanes = HWY_MAX_BYTES >= 64 ? 16 : HWY_MAX_BYTES / 4;

#if HWY_MAX_BYTES < 64
// Row b: for each lane, how many bits of b are set below it.
struct ExpandTable {
  alignas(64) std::array<std::array<std::int32_t, kLanes>, std::size_t{1} << kLanes> place{};
  constexpr ExpandTable() {
    for (int bits = 0; bits < 1 << kLanes; ++bits)
      for (int lane = 0; lane < kLanes; ++lane)
        place[static_cast<std::size_t>(bits)][static_cast<std::size_t>(lane)] =
            std::popcount(static_cast<unsigned>(bits) & ((1u << lane) - 1));
  }
};
constexpr ExpandTable kExpandTable;
#endif

// Lane i = the next value if bit i is set, else 0.
HWY_INLINE V expand_vector(V values, unsigned bits) {
#if HWY_TARGET == HWY_AVX3
  return V{_mm512_maskz_expand_ps(static_cast<__mmask16>(bits), values.raw)};
#else
  const D d;
  const auto* place = kExpandTable.place[bits].data();
  const std::uint8_t bytes[8] = {static_cast<std::uint8_t>(bits)};
  const auto moved = hn::TableLookupLanes(values, hn::SetTableIndices(d, place));
  return hn::IfThenElseZero(hn::LoadMaskBits(d, bytes), moved);
#endif
}

HWY_INLINE V load_values(const float* from) {
  return hn::LoadU(D(), from);
}
HWY_INLINE V load_values(const bf16* from) {
  const hn::Rebind<std::uint16_t, D> half;
  const hn::Repartition<std::uint32_t, D> whole;
  const auto bits = hn::LoadU(half, reinterpret_cast<const std::uint16_t*>(from));
  return hn::BitCast(D(), hn::ShiftLeft<16>(hn::PromoteTo(whole, bits)));
}

// As load_values, without reading at or beyond `end`.
template <typename T>
HWY_INLINE V load_values_before(const T* from, const T* end) {
  if (end - from >= kLanes) return load_values(from);
  T copy[kLanes] = {};
  for (std::int64_t i = 0; i < end - from; ++i) copy[i] = from[i];
  return load_values(copy);
}

}  // namespace
#endif
}  // namespace HWY_NAMESPACE
}  // namespace filigree
HWY_AFTER_NAMESPACE();

#endif
