#include "kernels/embedding/embedding.h"

#include "kernels/kernel_test.h"

namespace filigree::testing {
namespace {

struct Case {
  DType dtype;
  std::int64_t sequences, positions, channels, vocabulary, start;
  bool learned;
};
class EmbeddingTest : public ::testing::TestWithParam<Case> {};

TEST_P(EmbeddingTest, ForwardAndBackwardMatchReference) {
  const auto [dtype, sequences, positions, channels, vocabulary, start, learned] = GetParam();
  const auto device = Device::cpu();
  const OwnedTensor tokens = device->memory().tensor(Purpose::workspace, DType::i32, {sequences, positions});
  const Random random(1, RandomPurpose::test);
  for (std::int64_t i = 0; i < sequences * positions; ++i)
    store(tokens, i, random.below(static_cast<std::uint64_t>(i), static_cast<std::uint32_t>(vocabulary)));
  const OwnedTensor table = random_tensor(*device, dtype, {vocabulary, channels}, 1);
  const OwnedTensor place = random_tensor(*device, dtype, {start + positions + 2, channels}, 2);
  const OwnedTensor y = random_tensor(*device, dtype, {sequences, positions, channels}, 3);
  const OwnedTensor dtable = random_tensor(*device, DType::f32, {vocabulary, channels}, 4);
  const OwnedTensor dplace = random_tensor(*device, DType::f32, {start + positions + 2, channels}, 5);
  const OwnedTensor dy = random_tensor(*device, dtype, {sequences, positions, channels}, 6);
  std::vector<double> expected_dtable = values_of(dtable), expected_dplace = values_of(dplace);

  embedding_forward(
      *device,
      {.y = y, .tokens = tokens, .table = table, .positions = learned ? place.view() : Tensor{}, .start = start});
  embedding_backward(*device,
                     {.dtable = dtable, .dpositions = learned ? dplace.view() : Tensor{}, .dy = dy, .tokens = tokens});

  const std::vector<double> rows = values_of(table), places = values_of(place), gradients = values_of(dy);
  const std::vector<double> ids = values_of(tokens);
  std::vector<double> expected(gradients.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto c = static_cast<std::size_t>(channels), s = static_cast<std::size_t>(positions);
    const std::size_t token = i / c, column = i % c;
    const std::size_t row = static_cast<std::size_t>(ids[token]) * c + column;
    expected[i] = rows[row] + (learned ? places[(static_cast<std::size_t>(start) + token % s) * c + column] : 0.0);
    expected_dtable[row] += gradients[i];
    if (learned) expected_dplace[token % s * c + column] += gradients[i];
  }
  expect_close(y, expected, 1, 4.0, "y");
  const std::int64_t repeats = sequences * positions / std::max<std::int64_t>(1, vocabulary) + 4;
  expect_close(dtable, expected_dtable, repeats, 4.0, "dtable");
  expect_close(dplace, expected_dplace, sequences + 1, 4.0, "dpositions");
}

INSTANTIATE_TEST_SUITE_P(Shapes, EmbeddingTest,
                         ::testing::Values(Case{DType::f32, 1, 1, 1, 1, 0, true}, Case{DType::f32, 0, 4, 8, 5, 0, true},
                                           Case{DType::f32, 3, 7, 33, 5, 2, true},
                                           Case{DType::f32, 2, 50, 200, 1000, 0, false},
                                           Case{DType::bf16, 3, 7, 33, 5, 2, true},
                                           Case{DType::bf16, 2, 50, 200, 1000, 0, false},
                                           Case{DType::bf16, 2, 9, 0, 3, 0, true}));

TEST(Embedding, BackwardIsIndependentOfTheThreadCount) {
  const auto device = Device::cpu();
  const OwnedTensor tokens = device->memory().tensor(Purpose::workspace, DType::i32, {4, 100});
  for (std::int64_t i = 0; i < 400; ++i) store(tokens, i, static_cast<double>(i * i % 7));
  const OwnedTensor dtable = random_tensor(*device, DType::f32, {7, 333}, 1);
  const OwnedTensor dy = random_tensor(*device, DType::f32, {4, 100, 333}, 2);
  expect_same_for_any_thread_count(dtable, [&] {
    fill_normal(dtable, 1);
    embedding_backward(*device, {.dtable = dtable, .dy = dy, .tokens = tokens});
  });
}

TEST(Embedding, RejectsTokensPastTheLearnedPositions) {
  const auto device = Device::cpu();
  const OwnedTensor tokens = device->memory().tensor(Purpose::workspace, DType::i32, {1, 3});
  const OwnedTensor table = random_tensor(*device, DType::f32, {4, 2}, 1);
  const OwnedTensor y = random_tensor(*device, DType::f32, {1, 3, 2}, 1);
  EXPECT_THROW(embedding_forward(*device, {.y = y, .tokens = tokens, .table = table, .positions = table, .start = 2}),
               Error);
}

}  // namespace
}  // namespace filigree::testing
