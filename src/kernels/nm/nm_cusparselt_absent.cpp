// In place of nm_cusparselt.cpp where the library's header was not there at build time.
#include "kernels/nm/nm_cusparselt.h"

namespace filigree::cuda {
namespace {

constexpr const char* kAbsent =
    "this build has no cuSPARSELt (scripts/setup fetches it; or cmake -DCUSPARSELT_INCLUDE_DIR=...)";

}  // namespace

std::string cusparselt_refuses(Device&, std::int64_t, std::int64_t, Pattern, DType) {
  return kAbsent;
}

std::string cusparselt_order_unknown(Device&, std::int64_t, std::int64_t) {
  return kAbsent;
}

std::int64_t cusparselt_metadata_bytes(Device&, std::int64_t, std::int64_t) {
  return 0;
}

void cusparselt_pack(Device&, const NmMatrix&, bool) {
  throw Error(kAbsent);
}

CusparseltPlanned cusparselt_planned(Device&, const CusparseltShape&) {
  return {.refusal = kAbsent};
}

CusparseltPlanned cusparselt_plan(Device&, const NmMatmulArgs&, int) {
  return {.refusal = kAbsent};
}

void cusparselt_matmul(Device&, const NmMatmulArgs&) {
  throw Error(kAbsent);
}

}  // namespace filigree::cuda
