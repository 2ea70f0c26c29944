#include "kernels/matmul/library_version.h"

#include <oneapi/dnnl/dnnl.h>

namespace filigree {

std::string dense_library_version() {
  const dnnl_version_t* version = dnnl_version();
  return std::to_string(version->major) + "." + std::to_string(version->minor) + "." + std::to_string(version->patch);
}

}  // namespace filigree
