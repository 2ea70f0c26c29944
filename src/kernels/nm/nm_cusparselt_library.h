// The functions of cuSPARSELt, found at run time. Included by nm_cusparselt*.cpp alone.
#pragma once

#include <cusparseLt.h>

#include <source_location>
#include <string>

namespace filigree::cuda {

struct CusparseltLibrary {
  std::string refusal;  // why the library cannot be used; "": all functions below are there

  decltype(&cusparseLtInit) init = nullptr;
  decltype(&cusparseLtDestroy) destroy = nullptr;
  decltype(&cusparseLtGetProperty) get_property = nullptr;
  decltype(&cusparseLtGetErrorString) get_error_string = nullptr;
  decltype(&cusparseLtDenseDescriptorInit) dense_descriptor_init = nullptr;
  decltype(&cusparseLtStructuredDescriptorInit) structured_descriptor_init = nullptr;
  decltype(&cusparseLtMatDescriptorDestroy) mat_descriptor_destroy = nullptr;
  decltype(&cusparseLtMatmulDescriptorInit) matmul_descriptor_init = nullptr;
  decltype(&cusparseLtMatmulDescSetAttribute) matmul_desc_set_attribute = nullptr;
  decltype(&cusparseLtMatmulAlgSelectionInit) alg_selection_init = nullptr;
  decltype(&cusparseLtMatmulAlgSelectionDestroy) alg_selection_destroy = nullptr;
  decltype(&cusparseLtMatmulAlgSetAttribute) alg_set_attribute = nullptr;
  decltype(&cusparseLtMatmulAlgGetAttribute) alg_get_attribute = nullptr;
  decltype(&cusparseLtMatmulPlanInit) plan_init = nullptr;
  decltype(&cusparseLtMatmulPlanDestroy) plan_destroy = nullptr;
  decltype(&cusparseLtMatmulGetWorkspace) get_workspace = nullptr;
  decltype(&cusparseLtMatmul) matmul = nullptr;
  decltype(&cusparseLtSpMMACompressedSize2) compressed_size = nullptr;
  decltype(&cusparseLtSpMMACompress2) compress = nullptr;

  // Throws Error unless `status` is success.
  void check(cusparseStatus_t status, std::source_location at = std::source_location::current()) const;
};

// From where the loader finds it (LD_LIBRARY_PATH), else from where the build found it.
CusparseltLibrary load_cusparselt();

}  // namespace filigree::cuda
