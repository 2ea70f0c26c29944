#include "kernels/block/sm90_tensor_map.h"

#include <cudaTypedefs.h>

#include <string>

#include "core/cuda_error.h"

namespace filigree::sm90 {

namespace {

// The driver's function, asked for through the runtime so that nothing links against the driver's library.
PFN_cuTensorMapEncodeTiled_v12000 find_encoder() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &result));
  require(result == cudaDriverEntryPointSuccess && function != nullptr,
          "this driver has no tensor maps: CUDA 12 or later is needed");
  return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
}

}  // namespace

CUtensorMap tensor_map(const void* data, std::int64_t rows, std::int64_t columns, int box_rows) {
  static const PFN_cuTensorMapEncodeTiled_v12000 encode = find_encoder();
  CUtensorMap map{};
  const cuuint64_t extents[2] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  const cuuint64_t row_bytes[1] = {static_cast<cuuint64_t>(columns) * 2};
  const cuuint32_t box[2] = {64, static_cast<cuuint32_t>(box_rows)};
  const cuuint32_t every[2] = {1, 1};
  const CUresult result = encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<void*>(data), extents, row_bytes,
                                 box, every, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  require(result == CUDA_SUCCESS, "the driver refused a tensor map of (" + std::to_string(rows) + ", " +
                                      std::to_string(columns) + "): CUresult " + std::to_string(result));
  return map;
}

}  // namespace filigree::sm90
