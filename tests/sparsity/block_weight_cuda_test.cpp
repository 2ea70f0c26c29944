// A block weight on a GPU beside the same weight on the processor.
#include <cstring>
#include <map>

#include "kernels/adamw/adamw.h"
#include "kernels/cuda_test.h"
#include "sparsity/block_weight.h"

namespace filigree::testing {
namespace {

LinearSpec spec_of(std::int64_t outputs, std::int64_t inputs, BlockShape block, DType dtype) {
  return {.name = "layer",
          .inputs = inputs,
          .outputs = outputs,
          .dtype = dtype,
          .method = "block",
          .block = block,
          .density = 0.5,
          .mask = "balanced"};
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

 private:
  const Device* device_;
  std::map<std::pair<File, std::string>, std::vector<std::byte>> arrays_;
};

class BlockWeightCuda : public CudaTest {
 protected:
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
  void train_alike(BlockWeight& here, BlockWeight& there, std::int64_t tokens, int steps) {
    const LinearSpec& spec = here.spec();
    for (int step = 1; step <= steps; ++step) {
      const auto stream = static_cast<std::uint32_t>(10 * step);
      const OwnedTensor x = random_tensor(cpu(), spec.dtype, {tokens, spec.inputs}, stream);
      const OwnedTensor dy = random_tensor(cpu(), spec.dtype, {tokens, spec.outputs}, stream + 1);
      const OwnedTensor bias = random_tensor(cpu(), DType::f32, {spec.outputs}, stream + 2);
      const OwnedTensor y = random_tensor(cpu(), spec.dtype, {tokens, spec.outputs}, stream + 3);
      const OwnedTensor dx = random_tensor(cpu(), spec.dtype, {tokens, spec.inputs}, stream + 4);
      const OwnedTensor gpu_x = on_gpu(x), gpu_dy = on_gpu(dy), gpu_bias = on_gpu(bias), gpu_y = on_gpu(y),
                        gpu_dx = on_gpu(dx);
      const std::string now =
          to_string(spec.block) + " " + std::string(name_of(spec.dtype)) + ", step " + std::to_string(step);
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
      expect_equal(theirs.master(), ours.master(), 1, 1.0, now + ", master");
      expect_equal(theirs.values(), ours.values(), 1, 1.0, now + ", values");
    }
  }
};

TEST_F(BlockWeightCuda, StartsFromTheSameMasksAndValues) {
  for (const char* mask : {"balanced", "random", "magnitude", "diagonal-band"})
    for (const DType dtype : {DType::f32, DType::bf16}) {
      LinearSpec spec = spec_of(384, 520, {128, 128}, dtype);
      spec.mask = mask;
      BlockWeight here(cpu(), spec), there(gpu(), spec);
      const OwnedTensor dense = random_tensor(cpu(), DType::f32, {384, 520}, 1);
      here.initialize(cpu(), dense, false);
      there.initialize(gpu(), on_gpu(dense), false);
      expect_same(there.mask(), here.mask(), mask);
      expect_equal(there.parameters()[0]->master(), here.parameters()[0]->master(), 1, 1.0, mask);
      EXPECT_TRUE(there.describe(gpu()).mask_valid);
    }
}

TEST_F(BlockWeightCuda, TrainsLikeTheProcessor) {
  for (const BlockShape block : {BlockShape{128, 128}, BlockShape{16, 16}})
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const LinearSpec spec = spec_of(256, 520, block, dtype);
      BlockWeight here(cpu(), spec), there(gpu(), spec);
      here.initialize(cpu(), random_tensor(cpu(), DType::f32, {256, 520}, 1), false);
      Store store(cpu()), back(gpu());
      here.save(store);
      there.load(gpu(), store, true);
      there.save(back);
      EXPECT_TRUE(back == store) << "a checkpoint holds the same bytes on either device";
      PlanTable table(false);
      there.plan(gpu(), table, 300);
      const bool fast = cuda::block_products_refuse(gpu(), {256, 520, block}, dtype).empty();
      for (const auto& [key, entry] : table.entries())
        EXPECT_EQ(entry.backend, fast ? Backend::sparse : Backend::dense) << key;
      EXPECT_EQ(there.describe(gpu()).backend.find('(') == std::string::npos, fast) << "a refusal is explained";
      train_alike(here, there, 300, 3);
      train_alike(here, there, 21, 1);  // a batch that was not planned
    }
}

// A few tokens read the kept blocks, whatever their shape and whatever was chosen for a batch.
TEST_F(BlockWeightCuda, DecodesLikeTheProcessor) {
  for (const BlockShape block : {BlockShape{128, 128}, BlockShape{64, 64}, BlockShape{16, 16}, BlockShape{12, 20}})
    for (const DType dtype : {DType::f32, DType::bf16}) {
      LinearSpec spec = spec_of(264, 520, block, dtype);
      spec.mode = Mode::inference;
      BlockWeight here(cpu(), spec), there(gpu(), spec);
      const OwnedTensor dense = random_tensor(cpu(), DType::f32, {264, 520}, 1);
      here.initialize(cpu(), dense, false);
      there.initialize(gpu(), on_gpu(dense), false);
      PlanTable table(false);
      there.plan(gpu(), table, 300);
      for (const std::int64_t tokens : {1, 4, 9, 16, 17}) {
        const std::string what = to_string(block) + " " + std::string(name_of(dtype)) + ", " + std::to_string(tokens);
        const OwnedTensor x = random_tensor(cpu(), dtype, {tokens, 520}, 2),
                          y = random_tensor(cpu(), dtype, {tokens, 264}, 3);
        const OwnedTensor z = random_tensor(cpu(), dtype, {tokens, 264}, 4),
                          bias = random_tensor(cpu(), DType::f32, {264}, 5);
        const OwnedTensor gpu_x = on_gpu(x), gpu_y = on_gpu(y), gpu_z = on_gpu(z), gpu_bias = on_gpu(bias);
        here.forward(cpu(), y, x, bias);
        there.forward(gpu(), gpu_y, gpu_x, gpu_bias);
        expect_equal(gpu_y, y, 520, 2.0, what + ", y");
        const bool fast = cuda::block_products_refuse(gpu(), {264, 520, block}, dtype).empty();
        const bool joins = there.forward_activated(gpu(), Activation::gelu, gpu_y, gpu_z, gpu_x, gpu_bias);
        EXPECT_EQ(joins, dtype == DType::bf16 && (fast || tokens <= 16)) << what;
        if (!joins) continue;
        ASSERT_TRUE(here.forward_activated(cpu(), Activation::gelu, y, z, x, bias));
        expect_equal(gpu_z, z, 520, 2.0, what + ", z");
        expect_equal(gpu_y, y, 520, 2.0, what + ", gelu");
        ASSERT_TRUE(there.forward_activated(gpu(), Activation::relu, gpu_y, gpu_y, gpu_x, gpu_bias));
        ASSERT_TRUE(here.forward_activated(cpu(), Activation::relu, y, y, x, bias));
        expect_equal(gpu_y, y, 520, 2.0, what + ", relu");
      }
    }
}

// Timed plans, kept as in a checkpoint.
TEST_F(BlockWeightCuda, PlansAreTimedAndKept) {
  BlockWeight weight(gpu(), spec_of(1024, 1024, {128, 128}, DType::bf16));
  weight.initialize(gpu(), on_gpu(random_tensor(cpu(), DType::f32, {1024, 1024}, 1)), false);
  if (weight.describe(gpu()).backend.find('(') != std::string::npos) GTEST_SKIP() << weight.describe(gpu()).backend;
  PlanTable table(true);
  weight.plan(gpu(), table, 2048);
  ASSERT_EQ(table.entries().size(), 3u);
  for (const auto& [key, entry] : table.entries()) {
    EXPECT_GT(entry.sparse_ms, 0.0) << key;
    EXPECT_GT(entry.dense_ms, 0.0) << key;
  }
  PlanTable resumed(true);
  resumed.restore(table.entries());
  weight.plan(gpu(), resumed, 2048);
  for (const auto& [key, entry] : resumed.entries()) EXPECT_EQ(entry.sparse_ms, table.entries().at(key).sparse_ms);
}

}  // namespace
}  // namespace filigree::testing
