// nm_matmul of bf16 and pattern 2:4 by nm_dot_forward.cpp, for more than a handful of tokens. An output is summed group
// by group, whatever the tokens and threads.
#pragma once

#include "kernels/nm/nm_matmul.h"

namespace filigree {

// Arguments that nm_matmul has checked. Needs AVX512_BF16.
void nm_dot_matmul(Device& device, const NmMatmulArgs& args);

}  // namespace filigree
