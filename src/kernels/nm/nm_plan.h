// Block sizes and the split over threads: pure functions of plain numbers.
#pragma once

#include <cstdint>

#include "kernels/nm/nm_target.h"

namespace filigree {

struct CacheSizes {
  std::int64_t l1 = 32 << 10;  // bytes, one core
  std::int64_t l2 = 1 << 20;
};
CacheSizes cache_sizes();

constexpr int nm_lanes(NmVectors vectors) {
  return vectors == NmVectors::avx512 ? 16 : vectors == NmVectors::avx2 ? 8 : 4;
}

// Rows are multiplied in groups of three that share loads (nm_matmul_vectors.cpp): splits of N keep groups whole.
inline constexpr int kNmRowGroup = 3;
// Up to this many tokens weights are streamed (nm_decode_vectors.cpp), kNmDecodeTokens at a time: packing them would
// cost more than multiplying them.
inline constexpr std::int64_t kNmStreamedTokens = 32;
inline constexpr std::int64_t kNmDecodeTokens = 4;

struct NmMatmulPlan {
  bool decode = false;            // T is small: nothing below applies
  bool bf16_dot = false;          // nm_dot_matmul.h: nothing below applies
  int vectors = 1;                // vectors of tokens in a full panel
  std::int64_t column_block = 0;  // inputs at once; depends on target and pattern alone, since sums depend on it
  std::int64_t row_block = 0;     // outputs at once, a multiple of kNmRowGroup
  int token_splits = 1;           // threads: token_splits x row_splits
  int row_splits = 1;
};
NmMatmulPlan plan_nm_matmul(std::int64_t tokens, std::int64_t outputs, Pattern pattern, DType dtype,
                            const NmTarget& target, const CacheSizes& caches, int threads);

struct NmGradientPlan {
  bool bf16_dot = false;
  int vectors = 1;                // vectors of tokens (bf16_dot: of token pairs) in a full chunk
  std::int64_t chunk = 0;         // tokens of a full chunk
  std::int64_t column_block = 0;  // inputs whose chunk stays in L1
  std::int64_t row_block = 0;     // outputs whose chunk stays in L2
  int row_splits = 1;             // threads: row_splits x column_splits
  int column_splits = 1;
};
NmGradientPlan plan_nm_gradient(std::int64_t inputs, std::int64_t outputs, Pattern pattern, DType dtype,
                                const NmTarget& target, const CacheSizes& caches, int threads);

}  // namespace filigree
