#include "kernels/selection/selection.h"

#include <hwy/targets.h>

#include "kernels/selection/selection_support.h"

namespace filigree::testing {
namespace {

class SelectionTest : public ::testing::TestWithParam<DType> {
 protected:
  const std::unique_ptr<Device> device_ = Device::cpu();
};

float rounded(float value, DType dtype) {
  return dtype == DType::bf16 ? static_cast<float>(bf16(value)) : value;
}

TEST_P(SelectionTest, CompactSplitsAndScatterPutsBack) {
  for (const std::int64_t count : {1, 31, 33, 1024, 1025, 5000})
    for (const float density : {0.0f, 0.03f, 0.4f, 1.0f})
      for (const bool pass : {false, true})
        for (const bool clear : {false, true}) {
          const OwnedSelection chosen = OwnedSelection::random(count, density, 7);
          const std::int64_t sent = chosen.before.back();
          const OwnedTensor gradient = random_tensor(*device_, DType::f32, {count}, 1);
          const OwnedTensor residual = random_tensor(*device_, DType::f32, {count}, 2);
          const std::vector<double> g = values_of(gradient), r = values_of(residual);
          // One more element, to see that nothing is written past the end.
          const OwnedTensor packed = random_tensor(*device_, GetParam(), {sent + 1}, 3);
          const double beyond = values_of(packed).back();
          const CompactArgs args = {.packed = packed.view().slice(0, sent),
                                    .gradient = gradient.view().as<float>(),
                                    .residual = residual.view().as<float>(),
                                    .chosen = chosen.view,
                                    .pass_residual = pass,
                                    .clear = clear};
          compact(*device_, {&args, 1});
          const std::set<std::int64_t> entries = chosen.entries();
          std::size_t place = 0;
          for (std::int64_t i = 0; i < count; ++i) {
            const auto at = static_cast<std::size_t>(i);
            const float both = static_cast<float>(r[at]) + static_cast<float>(g[at]);
            const bool is_sent = entries.contains(i);
            if (is_sent) {
              const float expected = rounded(pass ? both : static_cast<float>(g[at]), GetParam());
              ASSERT_EQ(values_of(packed)[place++], static_cast<double>(expected)) << i;
            }
            const double waits = !is_sent ? static_cast<double>(both) : pass ? 0.0 : r[at];
            ASSERT_EQ(residual.view().as<float>()[i], waits) << i;
            ASSERT_EQ(gradient.view().as<float>()[i], clear ? 0.0 : g[at]) << i;
          }
          EXPECT_EQ(values_of(packed).back(), beyond);

          const ScatterArgs back = {
              .gradient = gradient.view().as<float>(), .packed = args.packed, .chosen = chosen.view};
          scatter(*device_, {&back, 1});
          place = 0;
          for (std::int64_t i = 0; i < count; ++i)
            ASSERT_EQ(gradient.view().as<float>()[i], entries.contains(i) ? values_of(packed)[place++] : 0.0) << i;
        }
}

TEST_P(SelectionTest, IndicesAndTheirSum) {
  const std::int64_t count = 3000;
  const OwnedSelection chosen = OwnedSelection::random(count, 0.2f, 9);
  const std::set<std::int64_t> entries = chosen.entries();
  const std::int64_t sent = chosen.before.back();
  std::vector<std::int32_t> indices(static_cast<std::size_t>(sent));
  const IndicesArgs args = {.indices = indices.data(), .chosen = chosen.view};
  list_indices(*device_, {&args, 1});
  EXPECT_TRUE(std::equal(indices.begin(), indices.end(), entries.begin(), entries.end()));

  const OwnedTensor values = random_tensor(*device_, GetParam(), {sent}, 4);
  const OwnedTensor y = random_tensor(*device_, DType::f32, {count}, 5);
  std::vector<double> expected = values_of(y);
  for (std::size_t j = 0; j < indices.size(); ++j) {
    double& at = expected[static_cast<std::size_t>(indices[j])];
    at = static_cast<double>(static_cast<float>(at) + static_cast<float>(values_of(values)[j]));
  }
  add_at(*device_, y.view().as<float>(), indices.data(), values);
  EXPECT_EQ(values_of(y), expected);
}

INSTANTIATE_TEST_SUITE_P(Types, SelectionTest, ::testing::Values(DType::f32, DType::bf16));

TEST(Selection, MeasuresCountWhatIsChosen) {
  const auto device = Device::cpu();
  const std::int64_t count = 2100;
  const OwnedSelection a = OwnedSelection::random(count, 0.3f, 1), b = OwnedSelection::random(count, 0.5f, 2);
  const std::vector<float> scores = test_scores(count, 50, 3);
  SelectionMeasure expected;
  const std::set<std::int64_t> in_a = a.entries(), in_b = b.entries();
  for (std::int64_t i = 0; i < count; ++i) {
    const double square = std::pow(static_cast<double>(scores[static_cast<std::size_t>(i)]), 2);
    expected.all_squares += square;
    if (!in_a.contains(i)) continue;
    ++expected.chosen;
    expected.common += in_b.contains(i);
    expected.chosen_squares += square;
  }
  const MeasureArgs args = {.chosen = a.view, .other = b.view, .scores = scores.data()};
  const SelectionMeasure found = measure(*device, {&args, 1})[0];
  EXPECT_EQ(found.chosen, expected.chosen);
  EXPECT_EQ(found.common, expected.common);
  EXPECT_EQ(found.chosen_squares, expected.chosen_squares);  // whole numbers: sums are exact
  EXPECT_EQ(found.all_squares, expected.all_squares);
}

TEST(Selection, HashSeesEveryBitAndTheOrder) {
  const auto device = Device::cpu();
  OwnedSelection a = OwnedSelection::random(3000, 0.3f, 1), b = OwnedSelection::random(3000, 0.3f, 2);
  const auto hash = [&](const OwnedSelection& first, const OwnedSelection& second) {
    const Selection views[] = {first.view, second.view};
    return selection_hash(*device, views);
  };
  std::set<std::uint64_t> seen = {hash(a, b), hash(b, a)};
  EXPECT_EQ(seen.size(), 2u);
  for (std::size_t bit = 0; bit < 3000; ++bit) {
    a.bits[bit / 32] ^= 1u << (bit % 32);
    seen.insert(hash(a, b));
    a.bits[bit / 32] ^= 1u << (bit % 32);
  }
  EXPECT_EQ(seen.size(), 3002u);
}

// Every instruction set that this processor has does the same.
TEST(Selection, IsEqualForAllInstructionSets) {
  const auto device = Device::cpu();
  const std::int64_t count = 5000;
  const OwnedSelection chosen = OwnedSelection::random(count, 0.4f, 11);
  std::vector<std::vector<double>> packed_by_set;
  const auto supported = hwy::SupportedTargets();
  for (auto rest = supported; rest != 0; rest &= rest - 1) {
    const auto target = rest & ~(rest - 1);
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    const OwnedTensor gradient = random_tensor(*device, DType::f32, {count}, 1);
    const OwnedTensor residual = random_tensor(*device, DType::f32, {count}, 2);
    const OwnedTensor packed = device->memory().tensor(Purpose::workspace, DType::bf16, {chosen.before.back()});
    const CompactArgs args = {.packed = packed,
                              .gradient = gradient.view().as<float>(),
                              .residual = residual.view().as<float>(),
                              .chosen = chosen.view,
                              .pass_residual = true};
    compact(*device, {&args, 1});
    packed_by_set.push_back(values_of(packed));
    const std::vector<double> waits = values_of(residual);
    packed_by_set.back().insert(packed_by_set.back().end(), waits.begin(), waits.end());
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(supported);
  for (const auto& values : packed_by_set) EXPECT_EQ(values, packed_by_set.front());
}

}  // namespace
}  // namespace filigree::testing
