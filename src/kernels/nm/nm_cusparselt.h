// 2:4 products in bf16 by NVIDIA's cuSPARSELt, loaded when it is first asked for; no type of it crosses this header.
// The library may be absent: it then refuses every matrix, and says why.
//
// It reads a matrix as one array: the kept values row by row, as nm_format.h has them, and behind them the metadata, in
// an order of its own (nm_metadata.h). A matrix whose buffer has room behind its values is therefore multiplied where
// it is: NmMatrix::metadata views that room, cusparselt_pack fills it from the mask, and whoever changes values changes
// the product. A kept entry that is zero keeps its place.
//
// A plan belongs to a shape, is made once and kept in the Device: making it tries the library's algorithms, times them,
// and takes the fastest whose results are right and the same each time. The order of sums depends on the algorithm: a
// run that is to repeat another bit for bit makes its plans with the same ones.
#pragma once

#include <compare>
#include <string>

#include "kernels/nm/nm_matmul.h"

namespace filigree::cuda {

// Why the library cannot multiply a matrix (rows, columns) here; "" when it can. It serves 2:4 in bf16 with extents
// that are multiples of 64. The first time, the order of its metadata is learned from a small matrix, and for each
// shape it is checked against what the library writes: once the time of a dense product or less.
std::string cusparselt_refuses(Device& device, std::int64_t rows, std::int64_t columns, Pattern pattern, DType dtype);

// Why cusparselt_pack must leave a matrix that is not refused to the library; "" when the order of its metadata is
// known here, as it should be.
std::string cusparselt_order_unknown(Device& device, std::int64_t rows, std::int64_t columns);

// Bytes of metadata behind the values of a matrix that is not refused: rows · columns / 8, unless the library pads
// them.
std::int64_t cusparselt_metadata_bytes(Device& device, std::int64_t rows, std::int64_t columns);
// The same without a GPU, of any matrix: 0 of those that are refused everywhere.
inline std::int64_t cusparselt_planned_metadata(std::int64_t rows, std::int64_t columns, Pattern pattern, DType dtype) {
  const bool served = pattern == Pattern{2, 4} && dtype == DType::bf16 && rows % 64 == 0 && columns % 64 == 0;
  return served ? rows * columns / 8 : 0;
}

// matrix.metadata from matrix.mask, for a matrix that is not refused; in the device's stream. Moves 1/4 byte a weight.
// by_library: with the library's own compression, at about 5 bytes a weight and many times the time; taken where the
// metadata's order is unknown.
void cusparselt_pack(Device& device, const NmMatrix& matrix, bool by_library = false);

struct CusparseltShape {
  std::int64_t outputs = 0, inputs = 0, tokens = 0;  // N, K, T; T a multiple of 8
  friend auto operator<=>(const CusparseltShape&, const CusparseltShape&) = default;
};

struct CusparseltPlanned {
  int algorithm = -1;        // of the library's; -1: there is no plan
  std::string refusal = {};  // why there is none
  bool asked = false;        // cusparselt_plan has been here
  bool bias_asked = false;   // with a bias
};
// What cusparselt_plan made for the shape.
CusparseltPlanned cusparselt_planned(Device& device, const CusparseltShape& shape);

inline constexpr int kFastestAlgorithm = -1;  // timed
inline constexpr int kUsualAlgorithm = -2;    // not timed: the one that is fastest nearly everywhere, else the default
// Makes the plan of cusparselt_matmul for args' shapes, unless there is one. The operands are multiplied: x should be
// random, y is overwritten. `algorithm`: one of the library's, or one of the above. The host waits. With a bias,
// products with one are planned too: it is then added by the product, which rounds it to bf16; without such a plan it
// is written to y first.
CusparseltPlanned cusparselt_plan(Device& device, const NmMatmulArgs& args, int algorithm);

// nm_matmul (nm_matmul.h) of a shape that has a plan.
void cusparselt_matmul(Device& device, const NmMatmulArgs& args);

}  // namespace filigree::cuda
