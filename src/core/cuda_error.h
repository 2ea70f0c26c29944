// CUDA's status codes as exceptions.
#pragma once

#include <cuda_runtime.h>

#include <source_location>
#include <string>

#include "core/error.h"

namespace filigree {

inline void check(cudaError_t status, std::source_location at = std::source_location::current()) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // a recoverable error would otherwise be reported again by the next check
  throw Error(located(std::string(cudaGetErrorName(status)) + ": " + cudaGetErrorString(status), at));
}

}  // namespace filigree
