#include "nm_cuda_test.h"

namespace filigree::testing {
namespace {

class NmDoublePruneCuda : public NmCudaTest {
 protected:
  // Both devices prune the same matrix into the same place, which holds something before.
  void check(const Pattern pattern, DType from, DType to, std::int64_t rows, std::int64_t columns,
             const std::vector<std::pair<std::int64_t, std::int64_t>>& ranges) {
    const std::string what = to_string(pattern) + " " + std::string(name_of(from)) + " to " + std::string(name_of(to)) +
                             " " + std::to_string(rows) + "x" + std::to_string(columns);
    const OwnedNm forward(cpu(), from, rows, columns, pattern, 1);
    make_awkward(forward.values, true);
    const OwnedNm out(cpu(), to, columns, rows, pattern, 2);
    const GpuNm gpu_forward = matrix_on_gpu(forward.view), gpu_out = matrix_on_gpu(out.view);
    for (const auto& [begin, end] : ranges) {
      nm_double_prune(cpu(), out.view, forward.view, true, begin, end);
      nm_double_prune(gpu(), gpu_out.view, gpu_forward.view, true, begin, end);
      ASSERT_TRUE(same(gpu_out.mask, out.mask)) << what << ", mask of rows " << begin << " to " << end;
      ASSERT_TRUE(same(gpu_out.values, out.values)) << what << ", values of rows " << begin << " to " << end;
    }
    // Other values under the mask that was chosen.
    fill_normal(forward.values, 9);
    gpu().copy_from_host(gpu_forward.values, forward.values.view().data);
    nm_double_prune(cpu(), out.view, forward.view, false, 0, rows);
    nm_double_prune(gpu(), gpu_out.view, gpu_forward.view, false, 0, rows);
    ASSERT_TRUE(same(gpu_out, out.view)) << what << ", the mask kept";
    ASSERT_TRUE(same(gpu_forward, forward.view)) << what << ": forward was written";
  }
};

TEST_F(NmDoublePruneCuda, EveryPatternAndTypeGivesTheProcessorsBits) {
  for (const Pattern pattern : kNmPatterns)
    for (const DType from : {DType::f32, DType::bf16})
      for (const DType to : {DType::f32, DType::bf16})
        for (const std::int64_t high : {1, 3, 20})
          for (const std::int64_t wide : {1, 5, 18})
            check(pattern, from, to, pattern.of * high, pattern.of * wide, {{0, pattern.of * high}});
}

TEST_F(NmDoublePruneCuda, RangesOfRowsLeaveTheRestAlone) {
  for (const Pattern pattern : kNmPatterns) {
    const std::int64_t of = pattern.of;
    check(pattern, DType::f32, DType::f32, of * 20, of * 9, {{of * 3, of * 4}, {of * 7, of * 18}, {of, of}, {0, of}});
  }
}

// Whole tiles, halves of them, more than one.
TEST_F(NmDoublePruneCuda, TheKernelOfBf16GivesTheProcessorsBits) {
  for (const std::int64_t rows : {64, 128, 192, 448})
    for (const std::int64_t columns : {64, 128, 320, 768})
      check({2, 4}, DType::bf16, DType::bf16, rows, columns, {{0, rows}});
  check({2, 4}, DType::bf16, DType::bf16, 512, 192, {{64, 192}, {448, 512}, {192, 448}});
}

// Columns with every number of kept entries, in every order of magnitudes: all the tile's choices.
TEST_F(NmDoublePruneCuda, EveryChoiceOfATileIsMadeAlike) {
  const OwnedNm forward(cpu(), DType::bf16, 1024, 1024, {2, 4}, 3);
  const Random random(8, RandomPurpose::test);
  for (std::int64_t i = 0; i < forward.values.view().count(); ++i)
    store(forward.values, i, static_cast<double>(random.below(static_cast<std::uint64_t>(i), 5)) - 2.0);
  const OwnedNm out(cpu(), DType::bf16, 1024, 1024, {2, 4}, 4);
  const GpuNm gpu_forward = matrix_on_gpu(forward.view), gpu_out = matrix_on_gpu(out.view);
  nm_double_prune(cpu(), out.view, forward.view, true, 0, 1024);
  nm_double_prune(gpu(), gpu_out.view, gpu_forward.view, true, 0, 1024);
  EXPECT_TRUE(same(gpu_out, out.view));
}

}  // namespace
}  // namespace filigree::testing
