// Which kernel computes an N:M product on a GPU.
#include "kernels/nm/nm_cusparselt.h"
#include "kernels/nm/nm_decode_cuda.h"
#include "kernels/nm/nm_matmul.h"

namespace filigree::cuda {
namespace {

bool planned(Device& device, const NmMatmulArgs& args) {
  const NmMatrix& weight = args.weight;
  return !weight.metadata.empty() &&
         cusparselt_planned(device, {weight.rows, weight.columns, args.x.shape[0]}).algorithm >= 0;
}

}  // namespace

bool nm_matmul_serves(Device& device, const NmMatmulArgs& args) {
  return takes_nm_decode(args) || planned(device, args);
}

void nm_matmul(Device& device, const NmMatmulArgs& args) {
  if (planned(device, args)) return cusparselt_matmul(device, args);
  require(takes_nm_decode(args),
          "nm_matmul: on a GPU a product of this shape needs metadata and a plan (cusparselt_plan)");
  nm_decode(device, args);
}

}  // namespace filigree::cuda
