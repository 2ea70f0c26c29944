#include "kernels/cuda_test.h"
#include "kernels/embedding/embedding.h"

namespace filigree::testing {
namespace {

struct Case {
  std::int64_t sequences, positions, channels, vocabulary, start;
  bool learned;
};
class EmbeddingCuda : public CudaTest, public ::testing::WithParamInterface<DType> {};

// Runs of equal tokens inside a segment of 32, over one of its ends, over many segments, and one that is everything.
constexpr Case kCases[] = {{1, 1, 1, 1, 0, true},        {3, 7, 33, 5, 2, true},    {2, 50, 200, 1000, 0, false},
                           {4, 300, 264, 3, 5, true},    {5, 1000, 24, 1, 0, true}, {3, 401, 768, 60, 1, true},
                           {2, 777, 40, 50257, 0, true}, {1, 32, 8, 1, 0, false},   {1, 33, 8, 1, 0, false}};

TEST_P(EmbeddingCuda, ForwardAndBackwardMatchTheProcessorAndRepeat) {
  const DType dtype = GetParam();
  for (const Case& c : kCases) {
    const std::string what = std::to_string(c.sequences) + " x " + std::to_string(c.positions) + " tokens of " +
                             std::to_string(c.vocabulary) + ", " + std::to_string(c.channels) + " channels: ";
    const OwnedTensor tokens = cpu().memory().tensor(Purpose::workspace, DType::i32, {c.sequences, c.positions});
    const Random random(1, RandomPurpose::test);
    const std::int64_t count = c.sequences * c.positions;
    for (std::int64_t i = 0; i < count; ++i) {  // small tokens more often, as in a text
      const double uniform = static_cast<double>(random.uniform(static_cast<std::uint64_t>(i)));
      store(tokens, i, std::floor(uniform * uniform * static_cast<double>(c.vocabulary)));
    }
    const OwnedTensor table = random_tensor(cpu(), dtype, {c.vocabulary, c.channels}, 1);
    const OwnedTensor place = random_tensor(cpu(), dtype, {c.start + c.positions + 2, c.channels}, 2);
    const OwnedTensor y = random_tensor(cpu(), dtype, {c.sequences, c.positions, c.channels}, 3);
    const OwnedTensor dtable = random_tensor(cpu(), DType::f32, {c.vocabulary, c.channels}, 4);
    const OwnedTensor dplace = random_tensor(cpu(), DType::f32, {c.start + c.positions + 2, c.channels}, 5);
    const OwnedTensor dy = random_tensor(cpu(), dtype, {c.sequences, c.positions, c.channels}, 6);
    const OwnedTensor gtokens = on_gpu(tokens), gtable = on_gpu(table), gplace = on_gpu(place), gy = on_gpu(y);
    const OwnedTensor gdy = on_gpu(dy), gdtable = on_gpu(dtable), gdplace = on_gpu(dplace);
    const OwnedTensor again = on_gpu(dtable), again_place = on_gpu(dplace);
    const Shifted odd = on_gpu_shifted(dtable), odd_place = on_gpu_shifted(dplace), odd_y = on_gpu_shifted(y);

    const auto forward = [&](Device& device, const Tensor& to, const Tensor& ids, const Tensor& rows,
                             const Tensor& places) {
      embedding_forward(
          device,
          {.y = to, .tokens = ids, .table = rows, .positions = c.learned ? places : Tensor{}, .start = c.start});
    };
    forward(cpu(), y, tokens, table, place);
    forward(gpu(), gy, gtokens, gtable, gplace);
    forward(gpu(), odd_y.view, gtokens, gtable, gplace);
    expect_same(gy, y, what + "y");
    expect_same(odd_y.view, y, what + "y at an odd address");

    const auto backward = [&](Device& device, const Tensor& to, const Tensor& places, const Tensor& from,
                              const Tensor& ids) {
      embedding_backward(device,
                         {.dtable = to, .dpositions = c.learned ? places : Tensor{}, .dy = from, .tokens = ids});
    };
    backward(cpu(), dtable, dplace, dy, tokens);
    backward(gpu(), gdtable, gdplace, gdy, gtokens);
    backward(gpu(), again, again_place, gdy, gtokens);
    backward(gpu(), odd.view, odd_place.view, gdy, gtokens);
    const std::int64_t repeats = 2 * count / c.vocabulary + 40;
    expect_equal(gdtable, dtable, repeats, 2.0, what + "dtable");
    expect_equal(gdplace, dplace, c.sequences + 1, 2.0, what + "dpositions");
    expect_same(again, on_cpu(gdtable), what + "dtable again");
    expect_same(again_place, on_cpu(gdplace), what + "dpositions again");
    expect_same(odd.view, on_cpu(gdtable), what + "dtable at an odd address");
    expect_same(odd_place.view, on_cpu(gdplace), what + "dpositions at an odd address");
  }
}

INSTANTIATE_TEST_SUITE_P(Types, EmbeddingCuda, ::testing::Values(DType::f32, DType::bf16));

}  // namespace
}  // namespace filigree::testing
