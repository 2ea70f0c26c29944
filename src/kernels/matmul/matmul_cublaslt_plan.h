// What is kept for each product on a GPU, and how its algorithm is found. Only the cuBLASLt sources include this.
#pragma once

#include <cublasLt.h>

#include <compare>
#include <functional>
#include <memory>
#include <source_location>

#include "core/cuda_error.h"
#include "kernels/matmul/matmul.h"

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

// Everything that the choice of an algorithm may depend on. Extents as in matmul.h; alignments in bytes, at most 256.
struct MatmulShape {
  std::int64_t rows = 0;     // M
  std::int64_t columns = 0;  // N
  std::int64_t depth = 0;    // K
  DType operands = DType::f32;
  DType result = DType::f32;
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;
  bool bias = false;
  bool scaled = false;
  bool deterministic = false;
  Epilogue epilogue = Epilogue::none;
  std::int64_t a_stride = 0;
  std::uint32_t y_alignment = 0;
  std::uint32_t a_alignment = 0;
  std::uint32_t b_alignment = 0;
  std::uint32_t bias_alignment = 0;
  std::uint32_t pre_activation_alignment = 0;

  friend auto operator<=>(const MatmulShape&, const MatmulShape&) = default;
};
MatmulShape matmul_shape(const Device& device, const MatmulArgs& args);

// How the bias gets into y: by the product's epilogue, which wants it in y's type, or, where cuBLASLt has no algorithm
// with that epilogue, written to y's rows before a product that accumulates.
enum class BiasForm : std::uint8_t { none, epilogue, before };

struct MatmulPlan {
  bool separate = false;  // an epilogue in two steps, by matmul_then_gelu(): nothing else below is set
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
};

// Finds the algorithm, by timing (at most about 50 ms; y is left undefined unless the product accumulates) or, when
// the device is deterministic, by cuBLASLt's own estimate. An epilogue's two forms are timed against each other, which
// finds the plain product's algorithm as well; a deterministic device takes the fused one wherever cuBLASLt has it.
MatmulPlan plan_matmul(Device& device, cublasLtHandle_t handle, const MatmulShape& shape, const MatmulArgs& args);

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
