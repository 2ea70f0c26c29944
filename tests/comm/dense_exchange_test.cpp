#include "comm/dense_exchange.h"

#include "comm/virtual_ranks.h"
#include "support.h"

namespace filigree {
namespace {

constexpr int kRanks = 2;

// The parameters of a small model, each with another gradient on each rank: ones that are staged and one that is not.
struct Model {
  explicit Model(Device& device, int rank) {
    std::uint32_t stream = 0;
    const auto host = Device::cpu(1);
    for (const Shape& shape : {Shape{300}, Shape{512, 256}, Shape{0}, Shape{64}, Shape{17, 3}, Shape{400, 300}}) {
      parameters.push_back(std::make_unique<Parameter>(
          device, ParameterOptions{.name = std::string(1, static_cast<char>('a' + stream)), .shape = shape},
          Mode::training));
      all.push_back(parameters.back().get());
      const OwnedTensor values =
          testing::random_tensor(*host, DType::f32, shape, stream++ * kRanks + static_cast<std::uint32_t>(rank));
      if (shape.count() > 0) device.copy_from_host(all.back()->gradient(), values.view().data);
    }
  }
  std::vector<std::unique_ptr<Parameter>> parameters;
  std::vector<Parameter*> all;
};

std::vector<std::vector<float>> gradients_of(const Device& device, const Model& model) {
  std::vector<std::vector<float>> all;
  for (const Parameter* parameter : model.all) {
    all.emplace_back(static_cast<std::size_t>(parameter->count()));
    if (parameter->count() > 0) device.copy_to_host(all.back().data(), parameter->gradient());
  }
  return all;
}

// What an exchange makes of the gradients, on rank 0.
std::vector<std::vector<float>> exchanged(DType wire, std::int64_t bucket, Traffic* traffic = nullptr) {
  std::vector<std::vector<float>> result;
  run_virtual_ranks(kRanks, [&](Communicator& communicator) {
    const auto device = Device::named(FILIGREE_TEST_DEVICE, 1);
    const Model model(*device, communicator.rank());
    DenseExchange exchange(communicator, wire, bucket);
    exchange.attach(*device, model.all);
    exchange.begin_step(*device, {});
    for (Parameter* parameter : model.all) exchange.gradient_ready(*device, *parameter);
    exchange.finish(*device);
    if (!communicator.is_first()) return;
    result = gradients_of(*device, model);
    if (traffic) *traffic = communicator.traffic();
  });
  return result;
}

TEST(DenseExchange, AddsEveryGradientWhateverTheBuckets) {
  const auto host = Device::cpu(1);
  const Model first(*host, 0), second(*host, 1);
  std::vector<std::vector<float>> expected = gradients_of(*host, first);
  const std::vector<std::vector<float>> more = gradients_of(*host, second);
  for (std::size_t p = 0; p < expected.size(); ++p)
    for (std::size_t i = 0; i < expected[p].size(); ++i) expected[p][i] += more[p][i];
  for (const std::int64_t bucket : {std::int64_t{1}, std::int64_t{1500}, std::int64_t{1} << 30})
    EXPECT_EQ(exchanged(DType::f32, bucket), expected);
}

TEST(DenseExchange, RoundsOnTheWireWhereItIsBf16) {
  const auto host = Device::cpu(1);
  const auto first = gradients_of(*host, Model(*host, 0)), second = gradients_of(*host, Model(*host, 1));
  const auto sums = exchanged(DType::bf16, 4096);
  for (std::size_t p = 0; p < sums.size(); ++p)
    for (std::size_t i = 0; i < sums[p].size(); ++i)
      ASSERT_EQ(sums[p][i], static_cast<float>(
                                bf16(static_cast<float>(bf16(first[p][i])) + static_cast<float>(bf16(second[p][i])))));
}

TEST(DenseExchange, SendsEachValueOnce) {
  constexpr std::int64_t kValues = 300 + 512 * 256 + 64 + 17 * 3 + 400 * 300;
  Traffic traffic;
  exchanged(DType::f32, 1 << 20, &traffic);
  EXPECT_EQ(traffic.payload, 4 * kValues);
  EXPECT_EQ(traffic.wire, 4.0 * kValues);  // 2 (P-1)/P is 1 for two ranks
  exchanged(DType::bf16, 1 << 20, &traffic);
  EXPECT_EQ(traffic.payload, 2 * kValues);
}

TEST(DenseExchange, RefusesGradientsOutOfTurn) {
  SingleRank communicator;
  const auto device = Device::cpu(1);
  const Model model(*device, 0);
  DenseExchange exchange(communicator, DType::f32, 1);
  exchange.attach(*device, model.all);
  exchange.begin_step(*device, {});
  EXPECT_THROW(exchange.gradient_ready(*device, *model.all[1]), Error);
  exchange.gradient_ready(*device, *model.all[0]);
  EXPECT_THROW(exchange.finish(*device), Error);
}

}  // namespace
}  // namespace filigree
