// SLoPe's weight on a GPU beside the same weight on the processor.
#include <cstring>
#include <map>

#include "kernels/adamw/adamw.h"
#include "kernels/nm/nm_cuda_test.h"
#include "kernels/nm/nm_cusparselt.h"
#include "sparsity/product_shapes.h"
#include "sparsity/slope_weight.h"

namespace filigree::testing {
namespace {

LinearSpec spec_of(std::int64_t outputs, std::int64_t inputs, Pattern pattern, DType dtype) {
  return {.name = "layer", .inputs = inputs, .outputs = outputs, .dtype = dtype, .method = "slope", .pattern = pattern};
}

// Checkpoint arrays in memory.
class Store final : public CheckpointSink, public CheckpointSource {
 public:
  explicit Store(const Device& device) : device_(&device) {}
  void put(File file, const std::string& name, const Tensor& tensor) override {
    std::vector<std::byte>& bytes = arrays_[{file, name}];
    bytes.resize(tensor.bytes());
    device_->copy_to_host(bytes.data(), tensor);
  }
  bool has(File file, const std::string& name) const override { return arrays_.contains({file, name}); }
  void load(File file, const std::string& name, const Tensor& out) const override {
    const std::vector<std::byte>& bytes = arrays_.at({file, name});
    ASSERT_EQ(bytes.size(), out.bytes()) << name;
    std::memcpy(out.data, bytes.data(), bytes.size());
  }
  bool operator==(const Store& other) const { return arrays_ == other.arrays_; }
  std::size_t size() const { return arrays_.size(); }

 private:
  const Device* device_;
  std::map<std::pair<File, std::string>, std::vector<std::byte>> arrays_;
};

class SlopeCuda : public NmCudaTest {
 protected:
  // The same weight on both devices, by way of a checkpoint.
  void copy_to_gpu(SlopeWeight& from, SlopeWeight& to) {
    Store store(cpu());
    from.save(store);
    to.load(gpu(), store, true);
  }
  // Why there are no sparse products here; "" when there are.
  std::string refusal() { return cuda::cusparselt_refuses(gpu(), 64, 64, {2, 4}, DType::bf16); }
  // (W^{R,C})ᵀ on the GPU must be what the processor makes of the GPU's own W^R.
  void expect_derived(const SlopeWeight& weight, const std::string& what) {
    const OwnedTensor values = on_cpu(weight.row_pruned().values), mask = on_cpu(weight.row_pruned().mask);
    NmMatrix forward = weight.row_pruned(), want = weight.column_pruned();
    forward.values = values;
    forward.mask = mask;
    const OwnedTensor want_values = cpu().memory().tensor(Purpose::workspace, want.values.dtype, want.values.shape);
    const OwnedTensor want_mask = cpu().memory().tensor(Purpose::workspace, DType::u8, want.mask.shape);
    want.values = want_values;
    want.mask = want_mask;
    nm_double_prune(cpu(), want, forward, true, 0, forward.rows);
    EXPECT_TRUE(same(weight.column_pruned().mask, want.mask)) << what;
    EXPECT_TRUE(same(weight.column_pruned().values, want.values)) << what;
  }
  static AdamWArgs update_of(Parameter& parameter, int step) {
    const auto t = static_cast<double>(step);
    return {.values = parameter.values(),
            .master = parameter.master().as<float>(),
            .gradient = parameter.gradient().as<float>(),
            .m = parameter.m().as<float>(),
            .v = parameter.v().as<float>(),
            .count = parameter.count(),
            .step = {.lr = 1e-2f,
                     .bias_correction1 = static_cast<float>(1.0 - std::pow(0.9, t)),
                     .bias_correction2 = static_cast<float>(1.0 - std::pow(0.95, t))},
            .decay = 0.1f};
  }

  // Forward, both gradients and an update, on both devices, a few times over.
  void train_alike(SlopeWeight& here, SlopeWeight& there, std::int64_t tokens, int steps) {
    const LinearSpec& spec = here.spec();
    const std::string what = to_string(spec.pattern) + " " + std::string(name_of(spec.dtype));
    for (int step = 1; step <= steps; ++step) {
      const auto stream = static_cast<std::uint32_t>(10 * step);
      const OwnedTensor x = random_tensor(cpu(), spec.dtype, {tokens, spec.inputs}, stream);
      const OwnedTensor dy = random_tensor(cpu(), spec.dtype, {tokens, spec.outputs}, stream + 1);
      const OwnedTensor bias = random_tensor(cpu(), DType::f32, {spec.outputs}, stream + 2);
      const OwnedTensor y = random_tensor(cpu(), spec.dtype, {tokens, spec.outputs}, stream + 3);
      const OwnedTensor dx = random_tensor(cpu(), spec.dtype, {tokens, spec.inputs}, stream + 4);
      const OwnedTensor gpu_x = on_gpu(x), gpu_dy = on_gpu(dy), gpu_bias = on_gpu(bias), gpu_y = on_gpu(y),
                        gpu_dx = on_gpu(dx);
      const std::string now = what + ", step " + std::to_string(step);
      here.forward(cpu(), y, x, bias);
      there.forward(gpu(), gpu_y, gpu_x, gpu_bias);
      expect_equal(gpu_y, y, spec.inputs, 2.0, now + ", y");
      here.input_gradient(cpu(), dx, dy);
      there.input_gradient(gpu(), gpu_dx, gpu_dy);
      expect_equal(gpu_dx, dx, spec.outputs, 2.0, now + ", dx");
      for (const bool accumulate : {false, true}) {
        here.weight_gradient(cpu(), dy, x, accumulate);
        there.weight_gradient(gpu(), gpu_dy, gpu_x, accumulate);
        expect_equal(there.parameters()[0]->gradient(), here.parameters()[0]->gradient(), tokens, 4.0, now + ", dw");
      }
      // The same gradient on both, so that what follows differs by an update's rounding and no more.
      Parameter& ours = *here.parameters()[0];
      Parameter& theirs = *there.parameters()[0];
      gpu().copy_from_host(theirs.gradient(), ours.gradient().data);
      adamw(cpu(), update_of(ours, step));
      adamw(gpu(), update_of(theirs, step));
      here.refresh(cpu());
      there.refresh(gpu());
      expect_equal(theirs.master(), ours.master(), 1, 1.0, now + ", master");
      expect_equal(theirs.values(), ours.values(), 1, 1.0, now + ", values");
      EXPECT_TRUE(same(there.row_pruned().mask, here.row_pruned().mask)) << now;
      expect_derived(there, now);
      EXPECT_TRUE(there.describe(gpu()).mask_valid);
      copy_to_gpu(here, there);  // a value rounded otherwise must not choose another mask in the next step
    }
  }
};

TEST_F(SlopeCuda, StartsFromTheSameMasksAndValues) {
  for (const char* mask : {"random", "magnitude"})
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const Pattern pattern : {Pattern{2, 4}, Pattern{2, 8}}) {
        LinearSpec spec = spec_of(128, 192, pattern, dtype);
        spec.mask = mask;
        SlopeWeight here(cpu(), spec), there(gpu(), spec);
        const OwnedTensor dense = random_tensor(cpu(), DType::f32, {128, 192}, 1);
        here.initialize(cpu(), dense, false);
        there.initialize(gpu(), on_gpu(dense), false);
        EXPECT_TRUE(same(there.row_pruned().mask, here.row_pruned().mask)) << mask;
        expect_equal(there.parameters()[0]->master(), here.parameters()[0]->master(), 1, 1.0, mask);
        expect_derived(there, mask);
      }
}

TEST_F(SlopeCuda, TrainsLikeTheProcessorInFp32) {
  for (const Pattern pattern : {Pattern{2, 4}, Pattern{1, 2}, Pattern{2, 8}, Pattern{8, 16}}) {
    SlopeWeight here(cpu(), spec_of(96, 160, pattern, DType::f32)), there(gpu(), here.spec());
    here.initialize(cpu(), random_tensor(cpu(), DType::f32, {96, 160}, 1), false);
    copy_to_gpu(here, there);
    PlanTable table(true);
    there.plan(gpu(), table, 37);
    for (const auto& [key, entry] : table.entries()) EXPECT_EQ(entry.backend, Backend::dense) << key;
    EXPECT_TRUE(there.describe(gpu()).backend.starts_with(
        "forward dense-after-unpack, dx dense-after-unpack, dw dense-after-unpack ("))
        << there.describe(gpu()).backend;
    train_alike(here, there, 37, 4);
  }
}

TEST_F(SlopeCuda, TrainsLikeTheProcessorInBf16) {
  if (!refusal().empty()) GTEST_SKIP() << refusal();
  for (const bool sparse : {true, false}) {
    SlopeWeight here(cpu(), spec_of(192, 320, {2, 4}, DType::bf16)), there(gpu(), here.spec());
    here.initialize(cpu(), random_tensor(cpu(), DType::f32, {192, 320}, 1), false);
    copy_to_gpu(here, there);
    PlanTable table(false);
    if (!sparse) {
      std::map<std::string, PlanEntry> forced;
      for (const char* product : {"forward", "dx"})
        forced[std::string(product) + " 192x320 2:4 bf16 tokens 136 cuda"] = {.backend = Backend::dense};
      table.restore(forced);
    }
    there.plan(gpu(), table, 136);
    ASSERT_EQ(table.entries().size(), 2u) << "the keys above are not the engine's";
    for (const auto& [key, entry] : table.entries())
      EXPECT_EQ(entry.backend, sparse ? Backend::sparse : Backend::dense) << key;
    EXPECT_EQ(there.describe(gpu()).backend, sparse ? "forward sparse, dx sparse, dw dense-after-unpack"
                                                    : "forward dense-after-unpack, dx dense-after-unpack, dw "
                                                      "dense-after-unpack");
    train_alike(here, there, 136, 3);
    // A batch that was not planned.
    train_alike(here, there, 21, 1);
  }
}

// Few tokens by the kernel that reads compressed weights, all others by the library: planned when they come, padded
// where it needs that, and the second time without an allocation.
TEST_F(SlopeCuda, InfersAnyNumberOfTokensFromCompressedWeights) {
  if (!refusal().empty()) GTEST_SKIP() << refusal();
  LinearSpec spec = spec_of(192, 320, {2, 4}, DType::bf16);
  spec.mode = Mode::inference;
  SlopeWeight here(cpu(), spec), there(gpu(), spec);
  here.initialize(cpu(), random_tensor(cpu(), DType::f32, {192, 320}, 1), false);
  Store store(cpu());
  here.save(store);
  there.load(gpu(), store, false);
  EXPECT_EQ(there.describe(gpu()).backend, "forward sparse");
  const OwnedTensor bias = random_tensor(cpu(), DType::f32, {192}, 2), gpu_bias = on_gpu(bias);
  const auto check = [&](std::int64_t tokens, bool with_bias) {
    const std::string what = std::to_string(tokens) + " tokens" + (with_bias ? ", bias" : "");
    const OwnedTensor x = random_tensor(cpu(), DType::bf16, {tokens, 320}, 3), gpu_x = on_gpu(x);
    const OwnedTensor y = cpu().memory().tensor(Purpose::workspace, DType::bf16, {tokens, 192}), gpu_y = on_gpu(y);
    here.forward(cpu(), y, x, with_bias ? bias.view() : Tensor{});
    there.forward(gpu(), gpu_y, gpu_x, with_bias ? gpu_bias.view() : Tensor{});
    expect_equal(gpu_y, y, 320, 2.0, what);
    if (tokens > 16) {
      EXPECT_GE(cuda::cusparselt_planned(gpu(), {192, 320, padded_tokens(tokens)}).algorithm, 0) << what;
    }
    const std::int64_t allocations = gpu().memory().allocations();
    there.forward(gpu(), gpu_y, gpu_x, with_bias ? gpu_bias.view() : Tensor{});
    EXPECT_EQ(gpu().memory().allocations(), allocations) << what;
    expect_equal(gpu_y, y, 320, 2.0, what + ", again");
  };
  for (const std::int64_t tokens : {1, 7, 16, 17, 24, 100, 136, 137})
    for (const bool with_bias : {false, true}) check(tokens, with_bias);
  PlanTable table(false);
  there.plan(gpu(), table, 301);
  ASSERT_EQ(table.entries().size(), 1u);
  EXPECT_EQ(table.entries().begin()->first, "forward 192x320 2:4 bf16 tokens 320 cuda");
  check(301, true);
}

// Timed plans, kept as in a checkpoint: the same algorithms on another device object.
TEST_F(SlopeCuda, PlansAreTimedKeptAndMadeAgain) {
  if (!refusal().empty()) GTEST_SKIP() << refusal();
  SlopeWeight weight(gpu(), spec_of(768, 768, {2, 4}, DType::bf16));
  weight.initialize(gpu(), on_gpu(random_tensor(cpu(), DType::f32, {768, 768}, 1)), false);
  PlanTable table(true);
  weight.plan(gpu(), table, 1024);
  ASSERT_EQ(table.entries().size(), 2u);
  std::map<std::string, PlanEntry> stored;
  for (const auto& [key, entry] : table.entries()) {
    EXPECT_GT(entry.sparse_ms, 0.0) << key;
    EXPECT_GT(entry.dense_ms, 0.0) << key;
    stored[key] = *plan_entry_of(to_text(entry));
  }
  const auto other = Device::cuda();
  SlopeWeight again(*other, weight.spec());
  again.initialize(*other, on_gpu(random_tensor(cpu(), DType::f32, {768, 768}, 1)), false);
  PlanTable resumed(true);
  resumed.restore(stored);
  again.plan(*other, resumed, 1024);
  for (const auto& [key, entry] : resumed.entries()) {
    EXPECT_EQ(to_text(entry), to_text(table.entries().at(key))) << key;
    EXPECT_EQ(entry.sparse_ms, 0.0) << "a stored choice is not timed again";
  }
  EXPECT_EQ(again.describe(*other).backend, weight.describe(gpu()).backend);
}

// More than one band of rows: a gradient of 98 MiB in fp32.
TEST_F(SlopeCuda, LargeGradientsArePackedBandByBand) {
  const std::int64_t outputs = 6272, inputs = 4096, tokens = 8;
  ASSERT_GT(outputs * inputs * 4, kMostBandBytes);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    SlopeWeight here(cpu(), spec_of(outputs, inputs, {2, 4}, dtype)), there(gpu(), here.spec());
    here.initialize(cpu(), random_tensor(cpu(), DType::f32, {outputs, inputs}, 1), false);
    copy_to_gpu(here, there);
    const OwnedTensor x = random_tensor(cpu(), dtype, {tokens, inputs}, 2);
    const OwnedTensor dy = random_tensor(cpu(), dtype, {tokens, outputs}, 3);
    const OwnedTensor gpu_x = on_gpu(x), gpu_dy = on_gpu(dy);
    for (const bool accumulate : {false, true}) {
      here.weight_gradient(cpu(), dy, x, accumulate);
      there.weight_gradient(gpu(), gpu_dy, gpu_x, accumulate);
    }
    expect_equal(there.parameters()[0]->gradient(), here.parameters()[0]->gradient(), tokens, 4.0, "dw");
  }
}

TEST_F(SlopeCuda, CheckpointsCrossDevices) {
  for (const bool fixed : {false, true})
    for (const DType dtype : {DType::f32, DType::bf16}) {
      LinearSpec spec = spec_of(128, 64, {2, 4}, dtype);
      spec.fixed_column_mask = fixed;
      SlopeWeight here(cpu(), spec), there(gpu(), spec), back(cpu(), spec);
      here.initialize(cpu(), random_tensor(cpu(), DType::f32, {128, 64}, 1), false);
      fill_normal(here.parameters()[0]->m(), 2);
      fill_normal(here.parameters()[0]->v(), 3);
      Store first(cpu()), second(gpu()), third(cpu());
      here.save(first);
      there.load(gpu(), first, true);
      there.save(second);
      back.load(cpu(), second, true);
      back.save(third);
      EXPECT_TRUE(second == first);
      EXPECT_TRUE(third == first);
      EXPECT_EQ(first.size(), (dtype == DType::bf16 ? 5u : 4u) + (fixed ? 1u : 0u));
      EXPECT_TRUE(same(there.column_pruned().values, here.column_pruned().values));
      EXPECT_TRUE(same(there.column_pruned().mask, here.column_pruned().mask));
    }
}

TEST_F(SlopeCuda, HoldsItsBytesAndAllocatesNothingInAStep) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const LinearSpec spec = spec_of(256, 512, {2, 4}, dtype);
    { SlopeWeight first(gpu(), spec); }  // the library learns the shape
    const std::int64_t before = gpu().memory().total();
    SlopeWeight weight(gpu(), spec);
    const std::int64_t weights = 256 * 512;
    EXPECT_EQ(gpu().memory().total() - before, weight.bytes());
    const bool packed = !weight.row_pruned().metadata.empty();
    // As on the processor, and where the library multiplies, an eighth of a byte of metadata for each matrix.
    EXPECT_EQ(weight.bytes(), weights * 41 / 4 + (packed ? weights / 4 : 0));
    weight.initialize(gpu(), on_gpu(random_tensor(cpu(), DType::f32, {256, 512}, 1)), false);
    PlanTable table(true);
    weight.plan(gpu(), table, 64);
    const OwnedTensor x = on_gpu(random_tensor(cpu(), dtype, {64, 512}, 2));
    const OwnedTensor dy = on_gpu(random_tensor(cpu(), dtype, {64, 256}, 3));
    const OwnedTensor y = gpu().memory().tensor(Purpose::workspace, dtype, {64, 256});
    const OwnedTensor dx = gpu().memory().tensor(Purpose::workspace, dtype, {64, 512});
    const auto step = [&] {
      weight.forward(gpu(), y, x, {});
      weight.input_gradient(gpu(), dx, dy);
      weight.weight_gradient(gpu(), dy, x, false);
      weight.refresh(gpu());
    };
    step();
    const std::int64_t allocations = gpu().memory().allocations();
    step();
    EXPECT_EQ(gpu().memory().allocations(), allocations);
  }
}

}  // namespace
}  // namespace filigree::testing
