#include "kernels/nm/nm_cusparselt_library.h"

#include <dlfcn.h>

#include "core/error.h"

namespace filigree::cuda {
namespace {

constexpr const char* kName = "libcusparseLt.so.0";

void* open(std::string& refusal) {
  void* library = dlopen(kName, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) library = dlopen(FILIGREE_CUSPARSELT_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = dlerror();
    refusal = std::string("cuSPARSELt cannot be loaded: ") + (reason ? reason : kName);
  }
  return library;
}

}  // namespace

void CusparseltLibrary::check(cusparseStatus_t status, std::source_location at) const {
  if (status != CUSPARSE_STATUS_SUCCESS)
    throw Error(located(std::string("cuSPARSELt: ") + get_error_string(status), at));
}

// The library stays loaded to the program's end.
CusparseltLibrary load_cusparselt() {
  CusparseltLibrary found;
  void* library = open(found.refusal);
  if (library == nullptr) return found;
  const auto find = [&]<typename Function>(Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    if (function == nullptr) found.refusal = std::string("cuSPARSELt has no ") + name + ": another version is needed";
  };
  find(found.init, "cusparseLtInit");
  find(found.destroy, "cusparseLtDestroy");
  find(found.get_property, "cusparseLtGetProperty");
  find(found.get_error_string, "cusparseLtGetErrorString");
  find(found.dense_descriptor_init, "cusparseLtDenseDescriptorInit");
  find(found.structured_descriptor_init, "cusparseLtStructuredDescriptorInit");
  find(found.mat_descriptor_destroy, "cusparseLtMatDescriptorDestroy");
  find(found.matmul_descriptor_init, "cusparseLtMatmulDescriptorInit");
  find(found.matmul_desc_set_attribute, "cusparseLtMatmulDescSetAttribute");
  find(found.alg_selection_init, "cusparseLtMatmulAlgSelectionInit");
  find(found.alg_selection_destroy, "cusparseLtMatmulAlgSelectionDestroy");
  find(found.alg_set_attribute, "cusparseLtMatmulAlgSetAttribute");
  find(found.alg_get_attribute, "cusparseLtMatmulAlgGetAttribute");
  find(found.plan_init, "cusparseLtMatmulPlanInit");
  find(found.plan_destroy, "cusparseLtMatmulPlanDestroy");
  find(found.get_workspace, "cusparseLtMatmulGetWorkspace");
  find(found.matmul, "cusparseLtMatmul");
  find(found.compressed_size, "cusparseLtSpMMACompressedSize2");
  find(found.compress, "cusparseLtSpMMACompress2");
  if (!found.refusal.empty()) return found;
  // Before its version 1 the library changes its structures from one minor version to the next.
  int major = -1, minor = -1;
  found.get_property(MAJOR_VERSION, &major);
  found.get_property(MINOR_VERSION, &minor);
  if (major != CUSPARSELT_VER_MAJOR || minor != CUSPARSELT_VER_MINOR)
    found.refusal = "cuSPARSELt is version " + std::to_string(major) + "." + std::to_string(minor) +
                    ", this build needs " + std::to_string(CUSPARSELT_VER_MAJOR) + "." +
                    std::to_string(CUSPARSELT_VER_MINOR);
  return found;
}

}  // namespace filigree::cuda
