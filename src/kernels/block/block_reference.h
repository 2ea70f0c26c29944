// The block products in plain loops on the CPU, in double: what every kernel is compared with. Formulas, shapes and
// epilogues as in block_matmul.h; here all arrays are host memory, and results are not rounded.
#pragma once

#include <vector>

#include "kernels/block/block_format.h"

namespace filigree {

struct BlockReference {
  BlockGrid grid;
  BlockLists lists;
  std::vector<double> values;  // (blocks, block.rows, block.columns)

  // W (N, K) with zeros where no block is kept.
  std::vector<double> dense() const;
  // x Wᵀ + bias: (T, N). An empty bias is none.
  std::vector<double> forward(const std::vector<double>& x, const std::vector<double>& bias, std::int64_t tokens) const;
  // dy W: (T, K).
  std::vector<double> input_gradient(const std::vector<double>& dy, std::int64_t tokens) const;
  // Kept blocks of dyᵀ x: (blocks, block.rows, block.columns); 0 outside W.
  std::vector<double> weight_gradient(const std::vector<double>& dy, const std::vector<double>& x,
                                      std::int64_t tokens) const;
};

// GELU in the tanh form of activation.h.
double gelu_reference(double x);

}  // namespace filigree
