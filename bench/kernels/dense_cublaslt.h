// The best dense product that cuBLASLt offers for one shape: every algorithm that its heuristics name is timed.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <memory>

namespace filigree::bench {

enum class Product { forward, input_gradient, weight_gradient };

// Operands of a product, row-major: forward y (T, N) = x (T, K) · Wᵀ, input gradient dx (T, K) = dy (T, N) · W (N, K),
// weight gradient dW (N, K) = dyᵀ · x. bf16, but dW fp32: what training needs.
struct DenseOperands {
  void* out;
  const void* left;   // x; dy; dy
  const void* right;  // W; W; x
};

class DenseProduct {
 public:
  // Times each algorithm on `operands`, three launches after one, and keeps the fastest.
  DenseProduct(Product product, std::int64_t tokens, std::int64_t outputs, std::int64_t inputs,
               const DenseOperands& operands, cudaStream_t stream);
  ~DenseProduct();
  DenseProduct(const DenseProduct&) = delete;
  DenseProduct& operator=(const DenseProduct&) = delete;

  void run(const DenseOperands& operands, cudaStream_t stream) const;
  int algorithms() const;  // timed

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// cuBLASLt's version number.
std::size_t cublaslt_version();

}  // namespace filigree::bench
