#include "text/unicode_kinds.h"

#include <algorithm>
#include <vector>

namespace filigree {
namespace {

constexpr std::uint32_t kRuns[] = {
#include "text/unicode_runs.inc"
};

std::vector<CharacterKind> unpack_runs() {
  std::vector<CharacterKind> kinds;
  kinds.reserve(0x110000);
  for (const std::uint32_t run : kRuns) kinds.insert(kinds.end(), run / 8, static_cast<CharacterKind>(run % 8));
  return kinds;
}

}  // namespace

const CharacterKind* character_kinds() {
  static const std::vector<CharacterKind> kinds = unpack_runs();
  return kinds.data();
}

}  // namespace filigree
