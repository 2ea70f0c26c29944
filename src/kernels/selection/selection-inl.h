// The bits of a Selection as masks of lanes. Included inside foreach_target, so its guard toggles.
#if defined(FILIGREE_KERNELS_SELECTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FILIGREE_KERNELS_SELECTION_INL_H_
#undef FILIGREE_KERNELS_SELECTION_INL_H_
#else
#define FILIGREE_KERNELS_SELECTION_INL_H_
#endif

#include "kernels/selection/selection.h"
#include "kernels/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace filigree::HWY_NAMESPACE {

inline constexpr std::int64_t kWordsOfGroup = kSelectionGroup / 32;

// The entries [i, i + kLanes), i a multiple of kLanes; all of them where there is no Selection.
HWY_INLINE hn::Mask<FloatTag> lanes_chosen(const Selection& chosen, std::int64_t i) {
  const std::uint32_t word = chosen.empty() ? ~0u : chosen.bits[i / 32] >> (i % 32);
  HWY_ALIGN std::uint8_t bytes[8] = {static_cast<std::uint8_t>(word), static_cast<std::uint8_t>(word >> 8)};
  if constexpr (kLanes < 8) bytes[0] &= (1u << kLanes) - 1u;
  return hn::LoadMaskBits(FloatTag(), bytes);
}

// Calls body(entry of the group, its place among the packed ones of all) for a group's chosen entries.
template <typename Body>
HWY_INLINE void for_chosen_of_group(const Selection& chosen, std::int64_t group, const Body& body) {
  std::int64_t place = chosen.before[group];
  for (std::int64_t word = 0; word < kWordsOfGroup; ++word)
    for (std::uint32_t rest = chosen.bits[group * kWordsOfGroup + word]; rest; rest &= rest - 1)
      body(word * 32 + static_cast<std::int64_t>(hwy::Num0BitsBelowLS1Bit_Nonzero32(rest)), place++);
}

}  // namespace filigree::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
