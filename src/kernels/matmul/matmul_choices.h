// How the dense products of a GPU were computed, as text that a checkpoint keeps: a run that goes on computes them in
// the same way, without timing them again. Another version of the library or another GPU makes its own choices.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "kernels/matmul/matmul.h"

namespace filigree {

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
// E.g. "16384x3072x768 bf16 to bf16, b transposed, bias, gelu_forward, a_stride 0, aligned 256 256 256 256 256".
std::string to_text(const MatmulShape& shape);

// How the bias gets into y: by the product's epilogue, which wants it in y's type, or, where cuBLASLt has no algorithm
// with that epilogue, written to y's rows before a product that accumulates.
enum class BiasForm : std::uint8_t { none, epilogue, before };

struct MatmulChoice {
  bool separate = false;  // an epilogue in two steps: nothing else below is set
  BiasForm bias = BiasForm::none;
  std::array<std::uint64_t, 8> algorithm{};  // cuBLASLt's, which only itself understands

  friend bool operator==(const MatmulChoice&, const MatmulChoice&) = default;
};
// "separate", or the form and the algorithm in hexadecimal digits; with a checksum behind. And back: nothing when the
// text is not what was written.
std::string to_text(const MatmulChoice& choice);
std::optional<MatmulChoice> matmul_choice_of(const std::string& text);

struct MatmulChoices {
  std::string made_by;                         // library and GPU; "" when there are none
  std::map<std::string, std::string> entries;  // by the text of a shape: the text of a choice
};
// Those of the products so far. None on the CPU, whose library needs none, nor on a deterministic device, whose rule
// makes the same ones again.
MatmulChoices matmul_choices(Device& device);

// Takes choices over, for products that are not known yet. Returns what the user should know: that another library or
// GPU made them, so that they are not used, or how many are damaged; empty when all are taken. One that the library
// then refuses is made anew.
std::string restore_matmul_choices(Device& device, const MatmulChoices& choices);

// How many products were timed to choose their algorithm.
std::int64_t matmul_searches(Device& device);

namespace cuda {  // the same on a GPU: matmul_cublaslt.cpp; called by the functions above
MatmulChoices matmul_choices(Device& device);
std::string restore_matmul_choices(Device& device, const MatmulChoices& choices);
std::int64_t matmul_searches(Device& device);
}  // namespace cuda

}  // namespace filigree
