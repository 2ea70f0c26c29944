// Choosing, packing and transposing N:M matrices (format: nm_format.h). All results are exact, independent of the
// thread count, and the same on a GPU. There masks are chosen by the host, which waits: that happens once a run. What
// happens each step (nm_compress, nm_expand, nm_double_prune) is one kernel in the device's stream.
#pragma once

#include "core/device.h"
#include "core/random.h"
#include "kernels/nm/nm_format.h"

namespace filigree {

// mask (rows, mask_bytes): the `keep` largest |weights| of each group; equal magnitudes: the smaller column wins.
// weights (rows, columns) fp32 or bf16.
void nm_select_magnitude(Device& device, const Tensor& mask, const Tensor& weights, Pattern pattern);
// A uniformly random choice of `keep` positions in each group, keyed by the group's index in the matrix.
void nm_select_random(Device& device, const Tensor& mask, std::int64_t rows, std::int64_t columns, Pattern pattern,
                      const Random& random);

// values = kept entries of dense (rows, columns) [+ values when accumulate]. dense may be fp32 or bf16, values either;
// rounding to nearest even.
void nm_compress(Device& device, const NmMatrix& out, const Tensor& dense, bool accumulate = false);
// dense (rows, columns) = values at kept places, +0 elsewhere; dense has its own type, fp32 or bf16.
void nm_expand(Device& device, const Tensor& dense, const NmMatrix& in);
// dense (columns, rows) = the transpose of the above. Processors only.
void nm_expand_transposed(Device& device, const Tensor& dense, const NmMatrix& in);

// SLoPe's second pruning (arXiv 2405.16325, section 2): out = (W^{R,C})ᵀ of forward = W^R.
// forward (N, K) with `keep : of` along K; out (K, N) with the same pattern along N. N is a multiple of `of`.
// In each group of `of` rows of one column the `keep` largest |value| among the entries kept in forward stay, by the
// value as stored; equal magnitudes: the smaller row wins. A group with fewer kept entries is filled up with its
// smallest unused rows and the value +0. With `reselect` false the mask in `out` stays and only the values are renewed
// (an entry that forward does not keep stays +0). Only rows [row_begin, row_end) of forward, multiples of pattern.of,
// are read, and only their places in out written.
void nm_double_prune(Device& device, const NmMatrix& out, const NmMatrix& forward, bool reselect,
                     std::int64_t row_begin, std::int64_t row_end);

namespace cuda {  // the same on a GPU: nm_pack_cuda.cu, nm_double_prune_cuda.cu; called by the functions above
void nm_compress(Device& device, const NmMatrix& out, const Tensor& dense, bool accumulate);
void nm_expand(Device& device, const Tensor& dense, const NmMatrix& in);
void nm_double_prune(Device& device, const NmMatrix& out, const NmMatrix& forward, bool reselect,
                     std::int64_t row_begin, std::int64_t row_end);
}  // namespace cuda

}  // namespace filigree
