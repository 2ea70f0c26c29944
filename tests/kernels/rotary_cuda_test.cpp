#include "kernels/cuda_test.h"
#include "kernels/rotary/rotary.h"

namespace filigree::testing {
namespace {

struct Case {
  std::int64_t sequences, positions, size, start;
  int heads, kv_heads;
};
class RotaryCuda : public CudaTest {};

TEST_F(RotaryCuda, MatchesTheProcessorBothWays) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Case& c : {Case{1, 1, 2, 0, 1, 1}, Case{2, 5, 64, 3, 4, 2}, Case{2, 9, 38, 1, 3, 1},
                          Case{3, 4, 10, 7, 1, 1}, Case{2, 33, 128, 5, 25, 25}, Case{1, 70, 96, 0, 8, 1}}) {
      const std::int64_t width = (c.heads + 2 * c.kv_heads) * c.size;
      const std::string what = std::string(name_of(dtype)) + " D " + std::to_string(c.size);
      const OwnedTensor qkv = random_tensor(cpu(), dtype, {c.sequences, c.positions, width}, 1);
      const OwnedTensor table =
          cpu().memory().tensor(Purpose::workspace, DType::f32, {c.start + c.positions + 1, c.size});
      rotary_table(table, 10000.0);
      const OwnedTensor gqkv = on_gpu(qkv), gtable = on_gpu(table);
      const Shifted moved = on_gpu_shifted(qkv);
      for (const bool inverse : {false, true, true}) {
        const auto arguments = [&](const Tensor& to, const Tensor& angles) {
          return RotaryArgs{.qkv = to,
                            .table = angles,
                            .start = c.start,
                            .heads = c.heads,
                            .kv_heads = c.kv_heads,
                            .inverse = inverse};
        };
        rotary(cpu(), arguments(qkv, table));
        rotary(gpu(), arguments(gqkv, gtable));
        rotary(gpu(), arguments(moved.view, gtable));
        expect_equal(gqkv, qkv, 4, 3.0, what);
        expect_same(moved.view, on_cpu(gqkv), what + " at an odd address");
      }
    }
}

}  // namespace
}  // namespace filigree::testing
