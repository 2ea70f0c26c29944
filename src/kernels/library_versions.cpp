#include "kernels/library_versions.h"

#include <oneapi/dnnl/dnnl.h>

#ifdef FILIGREE_CUDA
#include <cublasLt.h>
#endif

namespace filigree {
namespace {

std::string dotted(std::size_t major, std::size_t minor, std::size_t patch) {
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(patch);
}

}  // namespace

std::vector<std::pair<std::string, std::string>> library_versions(const Device& device) {
#ifdef FILIGREE_CUDA
  if (device.is_cuda()) {
    const std::size_t blas = cublasLtGetVersion();  // 130101 is 13.1.1
    const auto runtime = static_cast<std::size_t>(device.gpu().runtime);
    return {{"CUDA", dotted(runtime / 1000, runtime % 1000 / 10, runtime % 10)},
            {"cuBLASLt", dotted(blas / 10000, blas % 10000 / 100, blas % 100)}};
  }
#else
  (void)device;
#endif
  const dnnl_version_t* version = dnnl_version();
  return {{"oneDNN", dotted(static_cast<std::size_t>(version->major), static_cast<std::size_t>(version->minor),
                            static_cast<std::size_t>(version->patch))}};
}

}  // namespace filigree
