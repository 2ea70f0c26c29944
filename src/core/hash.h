// FNV-1a: a small stable hash of names and bytes. Part of a run's identity (random streams): never change it.
#pragma once

#include <cstdint>
#include <string_view>

namespace filigree {

constexpr std::uint32_t fnv1a32(std::string_view text) {
  std::uint32_t hash = 0x811c9dc5u;
  for (const char letter : text) hash = (hash ^ static_cast<std::uint8_t>(letter)) * 0x01000193u;
  return hash;
}

}  // namespace filigree
