#include <sys/syscall.h>
#include <unistd.h>

#include "core/device.h"
#include "kernels/amx_tiles.h"

namespace filigree {

bool amx_usable() {
  // Linux gives a process the tile registers only on request; the permission holds for all its threads.
  static const bool usable = [] {
    constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    return cpu_features().amx_bf16 && cpu_features().avx512_bf16 &&
           syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  }();
  return usable;
}

}  // namespace filigree
