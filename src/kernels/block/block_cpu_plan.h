// Blocking of the CPU's block products and their split over threads: pure functions of plain numbers. No number here
// but `chunk` changes a result: every output is summed by itself, in the order of its list.
#pragma once

#include <cstdint>

#include "kernels/block/block_vectors.h"
#include "kernels/nm/nm_plan.h"

namespace filigree {

// Up to this many tokens the forward product streams the weights (decoding): packing them would cost more.
inline constexpr std::int64_t kBlockStreamedTokens = 16;

// Forward or dX seen as lines of blocks: block rows whose lists name block columns, or the other way round.
struct BlockLinesShape {
  std::int64_t tokens = 0;
  std::int64_t lines = 0;     // of results
  std::int64_t others = 0;    // lines of operands
  std::int64_t rows = 0;      // results of a line: the block's extent
  std::int64_t depth = 0;     // operands of a line
  std::int64_t operands = 0;  // in all: others x depth, or less where blocks hang over
};

struct BlockLinesPlan {
  bool pairs = false;             // vdpbf16ps
  std::int64_t words = 0;         // of a block's depth
  std::int64_t groups = 0;        // tiles of rows in a line, the last one filled up with zeros
  std::int64_t panels = 1;        // panels of kBlockTileVectors vectors of tokens that share a stay of weights in L2
  std::int64_t line_block = 1;    // lines at once: their sums for all panels stay in L2
  std::int64_t other_block = 1;   // lines of operands at once
  std::int64_t token_splits = 1;  // threads: token_splits x line_splits
  std::int64_t line_splits = 1;
};
BlockLinesPlan plan_block_lines(const BlockLinesShape& shape, DType dtype, const NmTarget& target,
                                const CacheSizes& caches, int threads);

struct BlockGradientPlan {
  bool pairs = false;
  std::int64_t chunk = 0;         // tokens that are packed and summed at once: depends on the target alone
  std::int64_t column_block = 1;  // block columns whose chunk of x stays in L2
};
BlockGradientPlan plan_block_gradient(const BlockGrid& grid, DType dtype, const NmTarget& target,
                                      const CacheSizes& caches);

}  // namespace filigree
