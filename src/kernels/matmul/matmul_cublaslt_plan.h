// What is kept for each product on a GPU, and how its algorithm is found. Only the cuBLASLt sources include this.
#pragma once

#include <cublasLt.h>

#include <functional>
#include <memory>
#include <optional>
#include <source_location>

#include "core/cuda_error.h"
#include "kernels/matmul/matmul_choices.h"

namespace filigree::cuda {

using filigree::check;  // CUDA's status codes, beside cuBLASLt's

inline void check(cublasStatus_t status, std::source_location at = std::source_location::current()) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw Error(located(std::string("cuBLASLt: ") + cublasLtGetStatusName(status), at));
}

template <auto destroy>
struct Destroyer {
  template <typename T>
  void operator()(T* object) const {
    destroy(object);
  }
};
using CublasLtHandle = std::unique_ptr<cublasLtContext, Destroyer<cublasLtDestroy>>;
using CublasLtOperation = std::unique_ptr<cublasLtMatmulDescOpaque_t, Destroyer<cublasLtMatmulDescDestroy>>;
using CublasLtLayout = std::unique_ptr<cublasLtMatrixLayoutOpaque_t, Destroyer<cublasLtMatrixLayoutDestroy>>;

MatmulShape matmul_shape(const Device& device, const MatmulArgs& args);

struct MatmulPlan {
  bool separate = false;  // an epilogue in two steps, by matmul_then_activation(): nothing else below is set
  BiasForm bias = BiasForm::none;
  bool reads_y = false;
  CublasLtOperation operation;
  CublasLtLayout y, a, b;
  cublasLtMatmulAlgo_t algorithm{};
  std::size_t workspace = 0;  // bytes that the algorithm needs, behind the bias in y's type
  float milliseconds = 0.0f;  // that it took, where it was timed

  // Of the scratch that a call asks for: the bias in bf16, if one is needed.
  std::size_t bias_bytes(const MatmulArgs& args) const {
    const bool converts = bias == BiasForm::epilogue && args.y.dtype != DType::f32;
    return converts ? (args.bias.bytes() / 2 + 255) / 256 * 256 : 0;
  }
  MatmulChoice choice() const;
};

// Finds the algorithm, by timing (at most about 50 ms; y is left undefined unless the product accumulates) or, when
// the device is deterministic, by cuBLASLt's own estimate. An epilogue's two forms are timed against each other, which
// finds the plain product's algorithm as well; a deterministic device takes the fused one wherever cuBLASLt has it.
MatmulPlan plan_matmul(Device& device, cublasLtHandle_t handle, const MatmulShape& shape, const MatmulArgs& args);
// The plan of a choice that was made earlier; nothing where cuBLASLt refuses it.
std::optional<MatmulPlan> plan_chosen(Device& device, cublasLtHandle_t handle, const MatmulShape& shape,
                                      const MatmulArgs& args, const MatmulChoice& choice);

// Scratch that an algorithm may ask for.
inline constexpr std::size_t kMostWorkspace = std::size_t{64} << 20;

// Takes an algorithm into a plan that has everything else; false when cuBLASLt has none that runs. `bias` is of y's
// type, `workspace` of kMostWorkspace bytes.
bool find_algorithm(Device& device, cublasLtHandle_t handle, const MatmulShape& shape, const MatmulArgs& args,
                    const void* bias, void* workspace, MatmulPlan& plan);
// Milliseconds of work on the device's stream, after a run that is not counted.
float time_on_gpu(Device& device, const std::function<void()>& work);

// The product alone, with its epilogue: y (M, N) = scale · op(a) op(b) [+ y] [+ bias]; `bias` is of y's type.
cublasStatus_t launch_matmul(cublasLtHandle_t handle, const MatmulPlan& plan, const cublasLtMatmulAlgo_t& algorithm,
                             const MatmulArgs& args, void* y, const void* bias, void* workspace,
                             std::size_t workspace_bytes, CUstream_st* stream);

}  // namespace filigree::cuda
