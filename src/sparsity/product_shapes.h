// How SLoPe's products are cut and padded on a GPU. Pure functions.
#pragma once

#include <cstdint>

namespace filigree {

// A dense weight gradient is computed and packed a band of rows at a time. A band takes at most 96 MiB in fp32, less
// than what unpacking a large weight in bf16 takes of the same workspace.
inline constexpr std::int64_t kMostBandBytes = 96 << 20;

// Rows of a band of the gradient (outputs, inputs): `outputs`, or a multiple of 128 below it; the last band has what is
// left. A dense product runs in waves of one tile of 128 x 256 a multiprocessor, and a wave that is not full takes as
// long as one that is: the bands are those that need the fewest waves in all, and of these the fewest bands.
// (5120 x 5120 on 132 multiprocessors: bands of 21 and 19 tiles' height, 4 + 3 waves; equal ones would take 4 + 4.)
std::int64_t gradient_band(std::int64_t outputs, std::int64_t inputs, int multiprocessors);

// Tokens that a product of `tokens` is padded to at inference, where each number of tokens would need a plan of its
// own: the next multiple of an eighth of the power of two below, and of 8, which cuSPARSELt asks for. At most eight
// plans from one power of two to the next, and an eighth of the work in vain; 512, 1024 or 1536 stay as they are.
std::int64_t padded_tokens(std::int64_t tokens);

}  // namespace filigree
