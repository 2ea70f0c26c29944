#include "kernels/dense_cublaslt.h"

#include <cublasLt.h>

#include <string>
#include <vector>

#include "core/cuda_error.h"

namespace filigree::bench {

namespace {

constexpr std::size_t kWorkspaceBytes = std::size_t{64} << 20;
constexpr int kAlgorithms = 32;

void check_blas(cublasStatus_t status, std::source_location at = std::source_location::current()) {
  if (status != CUBLAS_STATUS_SUCCESS) throw Error(located("cuBLASLt status " + std::to_string(status), at));
}

// Column-major, tight.
cublasLtMatrixLayout_t layout(std::int64_t rows, std::int64_t columns, cudaDataType_t type = CUDA_R_16BF) {
  cublasLtMatrixLayout_t made = nullptr;
  check_blas(cublasLtMatrixLayoutCreate(&made, type, static_cast<std::uint64_t>(rows),
                                        static_cast<std::uint64_t>(columns), rows));
  return made;
}

}  // namespace

struct DenseProduct::State {
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t description = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
  void* workspace = nullptr;
  int timed = 0;

  // Row-major out = left · right is column-major outᵀ = rightᵀ · leftᵀ: A is the right operand, B the left one.
  cublasStatus_t run(const DenseOperands& operands, const cublasLtMatmulAlgo_t& with, cudaStream_t stream) const {
    const float one = 1.0f, zero = 0.0f;
    return cublasLtMatmul(handle, description, &one, operands.right, a, operands.left, b, &zero, operands.out, c,
                          operands.out, c, &with, workspace, kWorkspaceBytes, stream);
  }
};

DenseProduct::DenseProduct(Product product, std::int64_t tokens, std::int64_t outputs, std::int64_t inputs,
                           const DenseOperands& operands, cudaStream_t stream)
    : state_(std::make_unique<State>()) {
  State& s = *state_;
  check_blas(cublasLtCreate(&s.handle));
  check(cudaMalloc(&s.workspace, kWorkspaceBytes));
  check_blas(cublasLtMatmulDescCreate(&s.description, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  const cublasOperation_t transpose = CUBLAS_OP_T;
  switch (product) {
    case Product::forward:
      s.a = layout(inputs, outputs), s.b = layout(inputs, tokens), s.c = layout(outputs, tokens);
      check_blas(
          cublasLtMatmulDescSetAttribute(s.description, CUBLASLT_MATMUL_DESC_TRANSA, &transpose, sizeof transpose));
      break;
    case Product::input_gradient:
      s.a = layout(inputs, outputs), s.b = layout(outputs, tokens), s.c = layout(inputs, tokens);
      break;
    case Product::weight_gradient:
      s.a = layout(inputs, tokens), s.b = layout(outputs, tokens), s.c = layout(inputs, outputs, CUDA_R_32F);
      check_blas(
          cublasLtMatmulDescSetAttribute(s.description, CUBLASLT_MATMUL_DESC_TRANSB, &transpose, sizeof transpose));
      break;
  }
  cublasLtMatmulPreference_t preference = nullptr;
  check_blas(cublasLtMatmulPreferenceCreate(&preference));
  check_blas(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                  &kWorkspaceBytes, sizeof kWorkspaceBytes));
  std::vector<cublasLtMatmulHeuristicResult_t> found(kAlgorithms);
  int count = 0;
  check_blas(cublasLtMatmulAlgoGetHeuristic(s.handle, s.description, s.a, s.b, s.c, s.c, preference, kAlgorithms,
                                            found.data(), &count));
  cublasLtMatmulPreferenceDestroy(preference);

  cudaEvent_t begin = nullptr, end = nullptr;
  check(cudaEventCreate(&begin));
  check(cudaEventCreate(&end));
  float best = 0.0f;
  for (int i = 0; i < count; ++i) {
    if (s.run(operands, found[static_cast<std::size_t>(i)].algo, stream) != CUBLAS_STATUS_SUCCESS) continue;
    check(cudaEventRecord(begin, stream));
    for (int repeat = 0; repeat < 3; ++repeat)
      check_blas(s.run(operands, found[static_cast<std::size_t>(i)].algo, stream));
    check(cudaEventRecord(end, stream));
    check(cudaEventSynchronize(end));
    float milliseconds = 0.0f;
    check(cudaEventElapsedTime(&milliseconds, begin, end));
    if (s.timed++ == 0 || milliseconds < best) {
      best = milliseconds;
      s.algorithm = found[static_cast<std::size_t>(i)].algo;
    }
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  require(s.timed > 0, "cuBLASLt has no algorithm for this product");
}

DenseProduct::~DenseProduct() {
  cublasLtMatrixLayoutDestroy(state_->a);
  cublasLtMatrixLayoutDestroy(state_->b);
  cublasLtMatrixLayoutDestroy(state_->c);
  cublasLtMatmulDescDestroy(state_->description);
  cublasLtDestroy(state_->handle);
  cudaFree(state_->workspace);
}

void DenseProduct::run(const DenseOperands& operands, cudaStream_t stream) const {
  check_blas(state_->run(operands, state_->algorithm, stream));
}

int DenseProduct::algorithms() const {
  return state_->timed;
}

std::size_t cublaslt_version() {
  return cublasLtGetVersion();
}

}  // namespace filigree::bench
