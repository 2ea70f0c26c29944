#include "comm/row_sparse_exchange.h"

#include "comm/dense_exchange.h"
#include "comm/radius_exchange.h"
#include "toy_training.h"

namespace filigree {
namespace {

using namespace testing;  // NOLINT: the tests' own helpers

// c.weight is (41, 25): each rank has values in a few of its rows, other ones at each step.
constexpr std::int64_t kRows = 5;
ToySettings embedding_like() {
  ToySettings toy = {.steps = 7};
  toy.gradient = [](std::int64_t step, int rank, std::size_t tensor, std::int64_t i) {
    const std::int64_t row = i / 25;
    const bool seen = row % 9 == (step + 2 * rank) % 9;  // 4 or 5 rows; ranks share some
    return tensor != 4 || seen ? toy_gradient(step, rank, tensor, i) : 0.0f;
  };
  return toy;
}

MakeExchange rows_apart(const MakeExchange& others, DType wire = DType::f32) {
  return [=](Communicator& communicator) {
    return std::make_unique<RowSparseExchange>(communicator, others(communicator), "c.weight", kRows, wire);
  };
}

TEST(RowSparse, IsExactlyTheSum) {
  const MakeExchange dense = [](Communicator& communicator) {
    return std::make_unique<DenseExchange>(communicator, DType::f32, 4096);
  };
  for (const int ranks : {1, 2, 4})
    EXPECT_TRUE(train_toy(ranks, embedding_like(), rows_apart(dense)) == train_toy(ranks, embedding_like(), dense))
        << ranks;
}

TEST(RowSparse, LeavesTheOthersToAnotherExchange) {
  const MakeExchange radius = [](Communicator& communicator) {
    return std::make_unique<RadiusExchange>(
        communicator, RadiusSettings{.density = 1.0, .interval = 3, .start = 0.0, .clip_norm = 0.0, .wire = {}});
  };
  const MakeExchange dense = [](Communicator& communicator) {
    return std::make_unique<DenseExchange>(communicator, DType::f32, 4096);
  };
  EXPECT_TRUE(train_toy(2, embedding_like(), rows_apart(radius)) == train_toy(2, embedding_like(), dense));
}

TEST(RowSparse, SendsListsAsLongAsARankHasTokens) {
  std::int64_t others = 0;
  for (const ToyShape& shape : toy_shapes())
    if (shape.name != "c.weight") others += shape.shape.count();
  Traffic traffic;
  const MakeExchange dense = [](Communicator& communicator) {
    return std::make_unique<DenseExchange>(communicator, DType::bf16, 4096);
  };
  train_toy(4, embedding_like(), rows_apart(dense, DType::bf16), {}, &traffic);
  const double expected = 7.0 * (2.0 * 3 / 4 * 2.0 * static_cast<double>(others) + 3.0 * kRows * (4 + 25 * 2));
  EXPECT_DOUBLE_EQ(traffic.wire, expected);
}

TEST(RowSparse, PaysForFewRowsAndRanks) {
  EXPECT_TRUE(rows_pay(4, 1000, {50257, 768}, DType::f32));
  EXPECT_FALSE(rows_pay(64, 2000, {50257, 768}, DType::f32));
  EXPECT_FALSE(rows_pay(1, 10, {50257, 768}, DType::f32));
}

}  // namespace
}  // namespace filigree
