// Shared by the N:M tests on a GPU: matrices on both devices, compared byte for byte.
#pragma once

#include "kernels/cuda_test.h"
#include "kernels/nm/nm_test.h"

namespace filigree::testing {

struct GpuNm {
  OwnedTensor values, mask;
  NmMatrix view;
};

class NmCudaTest : public CudaTest {
 protected:
  GpuNm matrix_on_gpu(const NmMatrix& host) {
    GpuNm copy{on_gpu(host.values), on_gpu(host.mask), host};
    copy.view.values = copy.values;
    copy.view.mask = copy.mask;
    return copy;
  }
  bool same(const Tensor& on_gpu, const Tensor& host) { return same_bytes(on_cpu(on_gpu), host); }
  bool same(const GpuNm& on_gpu, const NmMatrix& host) {
    return same(on_gpu.values, host.values) && same(on_gpu.mask, host.mask);
  }
  // Ties, kept zeros of both signs, denormal numbers and, where asked for, infinities.
  static void make_awkward(const Tensor& values, bool infinities) {
    const Random random(5, RandomPurpose::test, 17);
    static constexpr double kAwkward[] = {0.0, -0.0, 1.0, -1.0, 1e-40, -1e-40, 0.5, INFINITY};
    for (std::int64_t i = 0; i < values.count(); ++i) {
      const auto at = static_cast<std::uint64_t>(i);
      if (random.below(at, 2) == 0) store(values, i, kAwkward[random.below(at + 1000000, infinities ? 8 : 7)]);
    }
  }
};

inline const std::vector<Pattern> kNmPatterns = {{1, 2}, {2, 4}, {1, 4}, {2, 8}, {4, 8}, {8, 16}, {3, 5}, {31, 32}};

}  // namespace filigree::testing
