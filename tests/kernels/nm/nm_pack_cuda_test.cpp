#include "nm_cuda_test.h"

namespace filigree::testing {
namespace {

class NmPackCuda : public NmCudaTest {};

TEST_F(NmPackCuda, ExpandAndCompressGiveTheProcessorsBits) {
  for (const Pattern pattern : kNmPatterns)
    for (const DType packed : {DType::f32, DType::bf16})
      for (const DType wide : {DType::f32, DType::bf16})
        for (const std::int64_t rows : {1, 3, 70})
          for (const std::int64_t groups : {1, 3, 8, 40, 130}) {
            const std::int64_t columns = groups * pattern.of;
            const std::string what = to_string(pattern) + " " + std::string(name_of(packed)) + " " +
                                     std::string(name_of(wide)) + " " + std::to_string(rows) + "x" +
                                     std::to_string(columns);
            const OwnedNm host(cpu(), packed, rows, columns, pattern, 1);
            make_awkward(host.values, false);
            const GpuNm device = matrix_on_gpu(host.view);
            const OwnedTensor dense = random_tensor(cpu(), wide, {rows, columns}, 2);
            const OwnedTensor gpu_dense = on_gpu(dense);
            for (const bool accumulate : {true, false}) {
              nm_compress(cpu(), host.view, dense, accumulate);
              nm_compress(gpu(), device.view, gpu_dense, accumulate);
              ASSERT_TRUE(same(device, host.view)) << "compress " << what << (accumulate ? ", accumulate" : "");
            }
            make_awkward(host.values, true);
            gpu().copy_from_host(device.values, host.values.view().data);
            nm_expand(cpu(), dense, host.view);
            nm_expand(gpu(), gpu_dense, device.view);
            ASSERT_TRUE(same(gpu_dense, dense)) << "expand " << what;
          }
}

TEST_F(NmPackCuda, MasksAreTheProcessors) {
  for (const Pattern pattern : kNmPatterns)
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const std::int64_t rows = 33, columns = pattern.of * 9;
      const OwnedTensor weights = random_tensor(cpu(), dtype, {rows, columns}, 1);
      make_awkward(weights, true);
      const OwnedTensor mask = cpu().memory().tensor(Purpose::metadata, DType::u8, {rows, mask_bytes(columns)});
      const OwnedTensor gpu_mask = gpu().memory().tensor(Purpose::metadata, DType::u8, {rows, mask_bytes(columns)});
      nm_select_magnitude(cpu(), mask, weights, pattern);
      nm_select_magnitude(gpu(), gpu_mask, on_gpu(weights), pattern);
      EXPECT_TRUE(same(gpu_mask, mask)) << "magnitude " << to_string(pattern);
      const Random random(3, RandomPurpose::mask, 4);
      nm_select_random(cpu(), mask, rows, columns, pattern, random);
      nm_select_random(gpu(), gpu_mask, rows, columns, pattern, random);
      EXPECT_TRUE(same(gpu_mask, mask)) << "random " << to_string(pattern);
    }
}

// A band of rows of a wider gradient, as a weight packs it: the slices begin in the middle of the arrays, in bf16 at
// addresses that whole vectors do not fit.
TEST_F(NmPackCuda, BandsOfRows) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const OwnedNm host(cpu(), dtype, 96, 104, {2, 4}, 1);
    const GpuNm device = matrix_on_gpu(host.view);
    const OwnedTensor dense = random_tensor(cpu(), DType::f32, {96, 104}, 2);
    const OwnedTensor gpu_dense = on_gpu(dense);
    const auto band = [](const NmMatrix& matrix) {
      return NmMatrix{matrix.values.slice(31, 40), matrix.mask.slice(31, 40), 40, matrix.columns, matrix.pattern};
    };
    nm_compress(cpu(), band(host.view), dense.view().slice(1, 40), true);
    nm_compress(gpu(), band(device.view), gpu_dense.view().slice(1, 40), true);
    EXPECT_TRUE(same(device, host.view)) << name_of(dtype);
  }
}

}  // namespace
}  // namespace filigree::testing
