#include "sparsity/block_weight.h"

#include <cstring>
#include <map>

#include "kernels/block/block_pack.h"
#include "kernels/elementwise/elementwise.h"
#include "sparsity/dense_weight.h"
#include "support.h"

namespace filigree {
namespace {

using testing::random_tensor;
using testing::values_of;

LinearSpec spec_of(std::int64_t outputs, std::int64_t inputs, BlockShape block, double density,
                   DType dtype = DType::f32) {
  return {.name = "layer",
          .inputs = inputs,
          .outputs = outputs,
          .dtype = dtype,
          .method = "block",
          .block = block,
          .density = density,
          .mask = "balanced"};
}

// Whether W[n, k] is kept, by the stored mask.
bool kept(const BlockWeight& weight, std::int64_t n, std::int64_t k) {
  const BlockShape block = weight.spec().block;
  const std::int64_t row = n / block.rows, column = k / block.columns;
  return weight.mask().as<std::uint8_t>()[row * weight.mask().shape[1] + column / 8] >> (column % 8) & 1;
}

// W (N, K) of the values.
std::vector<double> dense_of(Device& device, BlockWeight& weight,
                             LinearWeight::Content content = LinearWeight::Content::values) {
  const LinearSpec& spec = weight.spec();
  const OwnedTensor dense = device.memory().tensor(Purpose::workspace, DType::f32, {spec.outputs, spec.inputs});
  weight.expand(device, dense, content);
  return values_of(dense);
}

void expect_near(const Tensor& got, const std::vector<double>& want, double tolerance) {
  const std::vector<double> values = values_of(got);
  ASSERT_EQ(values.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(values[i], want[i], tolerance) << "at " << i;
}

// Checkpoint arrays in memory.
class Store final : public CheckpointSink, public CheckpointSource {
 public:
  void put(File file, const std::string& name, const Tensor& tensor) override {
    const auto* bytes = static_cast<const std::byte*>(tensor.data);
    arrays_[{file, name}].assign(bytes, bytes + tensor.bytes());
  }
  bool has(File file, const std::string& name) const override { return arrays_.contains({file, name}); }
  void load(File file, const std::string& name, const Tensor& out) const override {
    const std::vector<std::byte>& bytes = arrays_.at({file, name});
    require_user(bytes.size() == out.bytes(), name + ": another shape");
    std::memcpy(out.data, bytes.data(), bytes.size());
  }
  std::map<std::pair<File, std::string>, std::vector<std::byte>> arrays_;
};

struct Case {
  const char* name;
  std::int64_t outputs, inputs;
  BlockShape block;
  double density;
};

class BlockLayer : public ::testing::TestWithParam<std::tuple<Case, DType, Backend>> {};

// The three products against the definition, by the sparse kernels and by dense ones after unpacking.
TEST_P(BlockLayer, ProductsAreThoseOfTheMaskedMatrix) {
  const auto& [shape, dtype, backend] = GetParam();
  const auto [name, outputs, inputs, block, density] = shape;
  const auto device = Device::cpu();
  const std::int64_t tokens = 37;
  BlockWeight weight(*device, spec_of(outputs, inputs, block, density, dtype));
  weight.initialize(*device, random_tensor(*device, DType::f32, {outputs, inputs}, 1), false);
  PlanTable table(false);
  weight.plan(*device, table, tokens);
  std::map<std::string, PlanEntry> forced = table.entries();
  ASSERT_EQ(forced.size(), 3u);
  for (auto& [key, entry] : forced) entry.backend = backend;
  table.restore(forced);
  weight.plan(*device, table, tokens);
  EXPECT_NE(weight.describe(*device).backend.find(std::string("dw ") + name_of(backend)), std::string::npos);

  const OwnedTensor x = random_tensor(*device, dtype, {tokens, inputs}, 2);
  const OwnedTensor dy = random_tensor(*device, dtype, {tokens, outputs}, 3);
  const OwnedTensor bias = random_tensor(*device, DType::f32, {outputs}, 4);
  const OwnedTensor y = random_tensor(*device, dtype, {tokens, outputs}, 5);  // poison
  const OwnedTensor dx = random_tensor(*device, dtype, {tokens, inputs}, 6);
  weight.forward(*device, y, x, bias);
  weight.input_gradient(*device, dx, dy);
  weight.weight_gradient(*device, dy, x, false);

  const OwnedTensor dense = device->memory().tensor(Purpose::workspace, DType::f32, {outputs, inputs});
  block_expand(*device, dense, weight.matrix());
  const std::vector<double> w = values_of(dense), xs = values_of(x), dys = values_of(dy), offsets = values_of(bias);
  std::vector<double> want_y(static_cast<std::size_t>(tokens * outputs)),
      want_dx(static_cast<std::size_t>(tokens * inputs));
  std::vector<double> want_dw(static_cast<std::size_t>(outputs * inputs));
  for (std::int64_t t = 0; t < tokens; ++t)
    for (std::int64_t n = 0; n < outputs; ++n) {
      const auto at = static_cast<std::size_t>(t * outputs + n);
      want_y[at] = offsets[static_cast<std::size_t>(n)];
      for (std::int64_t k = 0; k < inputs; ++k) {
        const auto nk = static_cast<std::size_t>(n * inputs + k), tk = static_cast<std::size_t>(t * inputs + k);
        want_y[at] += xs[tk] * w[nk];
        want_dx[tk] += dys[at] * w[nk];
        if (kept(weight, n, k)) want_dw[nk] += dys[at] * xs[tk];
      }
    }
  expect_near(y, want_y, testing::tolerance(dtype, inputs, 4.0));
  expect_near(dx, want_dx, testing::tolerance(dtype, outputs, 4.0));
  const Parameter& values = *weight.parameters()[0];
  const OwnedTensor dw = device->memory().tensor(Purpose::workspace, DType::f32, {outputs, inputs});
  BlockMatrix gradient = weight.matrix();
  gradient.values = values.gradient();
  block_expand(*device, dw, gradient);
  expect_near(dw, want_dw, testing::tolerance(DType::f32, tokens, 4.0));
  // A second micro-batch adds.
  weight.weight_gradient(*device, dy, x, true);
  for (double& value : want_dw) value *= 2.0;
  block_expand(*device, dw, gradient);
  expect_near(dw, want_dw, testing::tolerance(DType::f32, tokens, 8.0));
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, BlockLayer,
    ::testing::Combine(::testing::Values(Case{"half", 64, 96, {16, 16}, 0.5}, Case{"eighth", 48, 128, {16, 16}, 0.125},
                                         Case{"dense", 48, 64, {16, 16}, 1.0}, Case{"tall", 64, 48, {32, 8}, 0.3},
                                         Case{"hanging", 50, 70, {16, 32}, 0.5},
                                         Case{"one_block", 16, 16, {16, 16}, 1}),
                       ::testing::Values(DType::f32, DType::bf16), ::testing::Values(Backend::sparse, Backend::dense)),
    [](const auto& test) {
      return std::string(std::get<0>(test.param).name) + "_" + std::string(name_of(std::get<1>(test.param))) +
             (std::get<2>(test.param) == Backend::sparse ? "_sparse" : "_dense");
    });

TEST(BlockWeight, InitializationKeepsTheEnergyOfTheDenseMatrix) {
  const auto device = Device::cpu();
  const OwnedTensor dense = random_tensor(*device, DType::f32, {256, 256}, 1);
  const double all = sum_of_squares(*device, dense);
  for (const char* mask : {"balanced", "random", "magnitude", "diagonal-band"})
    for (const double density : {0.5, 0.125}) {
      LinearSpec spec = spec_of(256, 256, {16, 16}, density);
      spec.mask = mask;
      BlockWeight scaled(*device, spec);
      scaled.initialize(*device, dense, false);
      EXPECT_NEAR(sum_of_squares(*device, scaled.parameters()[0]->values()) / all, 1.0, 1e-4) << mask;
      BlockWeight trained(*device, spec);
      trained.initialize(*device, dense, true);
      EXPECT_NEAR(sum_of_squares(*device, trained.parameters()[0]->values()) / all, density,
                  std::string(mask) == "magnitude" ? 0.06 : 0.03)
          << mask;
      const std::vector<double> before = values_of(dense), after = dense_of(*device, trained);
      for (std::int64_t i = 0; i < 256 * 256; ++i)
        ASSERT_EQ(after[static_cast<std::size_t>(i)],
                  kept(trained, i / 256, i % 256) ? before[static_cast<std::size_t>(i)] : 0.0);
    }
}

TEST(BlockWeight, MasksDifferFromLayerToLayer) {
  const auto device = Device::cpu();
  const OwnedTensor dense = random_tensor(*device, DType::f32, {128, 128}, 1);
  std::vector<std::vector<double>> masks;
  for (const char* name : {"blocks.0.mlp.up", "blocks.1.mlp.up", "blocks.0.mlp.up"}) {
    LinearSpec spec = spec_of(128, 128, {16, 16}, 0.5);
    spec.name = name;
    BlockWeight weight(*device, spec);
    weight.initialize(*device, dense, false);
    masks.push_back(values_of(weight.mask()));
  }
  EXPECT_NE(masks[0], masks[1]);
  EXPECT_EQ(masks[0], masks[2]);
}

TEST(BlockWeight, WhatHangsOverStaysZero) {
  const auto device = Device::cpu();
  BlockWeight weight(*device, spec_of(40, 24, {16, 16}, 1.0));
  weight.initialize(*device, random_tensor(*device, DType::f32, {40, 24}, 1), false);
  const OwnedTensor x = random_tensor(*device, DType::f32, {20, 24}, 2),
                    dy = random_tensor(*device, DType::f32, {20, 40}, 3);
  testing::fill_normal(weight.parameters()[0]->gradient(), 4);
  weight.weight_gradient(*device, dy, x, false);
  const Parameter& values = *weight.parameters()[0];
  const std::vector<double> w = values_of(values.values()), g = values_of(values.gradient());
  for (std::int64_t block = 0; block < 6; ++block)  // 3 x 2 of them
    for (std::int64_t row = 0; row < 16; ++row)
      for (std::int64_t column = 0; column < 16; ++column) {
        const auto at = static_cast<std::size_t>((block * 16 + row) * 16 + column);
        const bool inside = block / 2 * 16 + row < 40 && block % 2 * 16 + column < 24;
        EXPECT_EQ(w[at] != 0.0, inside);
        EXPECT_EQ(g[at] != 0.0, inside);
      }
}

TEST(BlockWeight, SavesAndLoadsItsValuesMaskAndMoments) {
  const auto device = Device::cpu();
  for (const DType dtype : {DType::f32, DType::bf16}) {
    BlockWeight saved(*device, spec_of(72, 100, {16, 16}, 0.5, dtype));
    saved.initialize(*device, random_tensor(*device, DType::f32, {72, 100}, 1), false);
    testing::fill_normal(saved.parameters()[0]->m(), 2);
    testing::fill_normal(saved.parameters()[0]->v(), 3);
    Store store;
    saved.save(store);
    LinearSpec spec = saved.spec();
    spec.seed = 2;  // another mask, were it not for the checkpoint's
    BlockWeight loaded(*device, spec);
    loaded.initialize(*device, random_tensor(*device, DType::f32, {72, 100}, 4), false);
    ASSERT_NE(values_of(loaded.mask()), values_of(saved.mask()));
    loaded.load(*device, store, true);
    EXPECT_EQ(values_of(loaded.mask()), values_of(saved.mask()));
    for (const auto content : {LinearWeight::Content::values, LinearWeight::Content::m, LinearWeight::Content::v})
      EXPECT_EQ(dense_of(*device, loaded, content), dense_of(*device, saved, content));
    const OwnedTensor x = random_tensor(*device, dtype, {20, 100}, 5), dy = random_tensor(*device, dtype, {20, 72}, 6);
    for (BlockWeight* weight : {&saved, &loaded}) weight->weight_gradient(*device, dy, x, false);
    EXPECT_EQ(values_of(loaded.parameters()[0]->gradient()), values_of(saved.parameters()[0]->gradient()));

    auto& mask = store.arrays_.at({CheckpointSink::File::model, "layer.weight.mask"});
    mask[0] ^= std::byte{1};
    try {
      loaded.load(*device, store, true);
      FAIL() << "accepted";
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find("layer.weight.mask: a block row keeps another number of blocks than 4"),
                std::string::npos)
          << error.what();
    }
  }
}

TEST(BlockWeight, GoesOnFromADenseRunWithItsMoments) {
  const auto device = Device::cpu();
  LinearSpec spec = spec_of(48, 64, {8, 16}, 0.5);
  spec.method = "dense";
  DenseWeight dense(*device, spec);
  dense.initialize(*device, random_tensor(*device, DType::f32, {48, 64}, 1), false);
  testing::fill_normal(dense.parameters()[0]->m(), 2);
  testing::fill_normal(dense.parameters()[0]->v(), 3);
  spec.method = "block";
  spec.mask = "magnitude";
  const auto sparse = sparsify(*device, dense, spec);
  auto& block = dynamic_cast<BlockWeight&>(*sparse);
  for (const auto content : {LinearWeight::Content::values, LinearWeight::Content::m, LinearWeight::Content::v}) {
    const OwnedTensor before = device->memory().tensor(Purpose::workspace, DType::f32, {48, 64});
    dense.expand(*device, before, content);
    const auto want = values_of(before), got = dense_of(*device, block, content);
    for (std::int64_t i = 0; i < 48 * 64; ++i)
      EXPECT_EQ(got[static_cast<std::size_t>(i)],
                kept(block, i / 64, i % 64) ? want[static_cast<std::size_t>(i)] : 0.0);
  }
}

TEST(BlockWeight, HoldsItsBytesAndNothingDense) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Mode mode : {Mode::training, Mode::inference}) {
      const auto device = Device::cpu();
      LinearSpec spec = spec_of(256, 512, {16, 16}, 0.5, dtype);
      spec.mode = mode;
      const BlockWeight weight(*device, spec);
      EXPECT_EQ(device->memory().total(), weight.bytes());
      // 16 x 32 blocks: 256 kept. Lists: 16 bytes a kept block, 12 a tile of four, two rows of starts, the mask's bits.
      EXPECT_EQ(weight.bytes(), weight.dense_bytes() / 2 + 256 * 16 + 64 * 12 + (17 + 33) * 4 + 16 * 4);
    }
}

TEST(BlockWeight, SaysWhatItIs) {
  const auto device = Device::cpu();
  BlockWeight weight(*device, spec_of(64, 96, {16, 32}, 0.7));
  weight.initialize(*device, random_tensor(*device, DType::f32, {64, 96}, 1), false);
  const LayerDescription is = weight.describe(*device);
  EXPECT_EQ(is.method, "block");
  EXPECT_EQ(is.pattern, "16x32");
  EXPECT_DOUBLE_EQ(is.density, 2.0 / 3.0) << "2 of 3 blocks in each row";
  EXPECT_TRUE(is.mask_valid);
  LinearSpec spec = weight.spec();
  spec.mask = "checkered";
  BlockWeight unknown(*device, spec);
  EXPECT_THROW(unknown.initialize(*device, random_tensor(*device, DType::f32, {64, 96}, 1), false), Error);
}

}  // namespace
}  // namespace filigree
