#include "kernels/nm/nm_cusparselt.h"

#include <utility>
#include <vector>

#include "kernels/elementwise/elementwise.h"
#include "nm_cuda_test.h"

namespace filigree::testing {
namespace {

constexpr Pattern kPattern{2, 4};

class NmCusparselt : public NmCudaTest {
 protected:
  void SetUp() override {
    NmCudaTest::SetUp();
    if (IsSkipped()) return;
    if (const std::string reason = cuda::cusparselt_refuses(gpu(), 64, 64, kPattern, DType::bf16); !reason.empty())
      GTEST_SKIP() << reason;
  }

  // A matrix as the library reads it: room for metadata behind the values.
  struct Packed {
    OwnedTensor storage, mask;
    NmMatrix view;
  };
  Packed packed(const NmMatrix& host) {
    const auto bytes = static_cast<std::int64_t>(host.values.bytes());
    const std::int64_t metadata = cuda::cusparselt_metadata_bytes(gpu(), host.rows, host.columns);
    Packed out{gpu().memory().tensor(Purpose::weights, DType::u8, {bytes + metadata}), on_gpu(host.mask), host};
    auto* data = static_cast<std::byte*>(out.storage.view().data);
    out.view.values.data = data;
    out.view.mask = out.mask;
    out.view.metadata = {data + bytes, DType::u8, {metadata}};
    gpu().copy_from_host(out.view.values, host.values.data);
    cuda::cusparselt_pack(gpu(), out.view);
    return out;
  }

  // The planned product of random operands on both devices.
  void check(std::int64_t tokens, std::int64_t inputs, std::int64_t outputs, bool bias, float scale, int algorithm) {
    const std::string what = std::to_string(tokens) + " tokens, " + std::to_string(inputs) + " to " +
                             std::to_string(outputs) + (bias ? ", bias" : "");
    const OwnedNm host(cpu(), DType::bf16, outputs, inputs, kPattern, 1);
    const Packed device = packed(host.view);
    const OwnedTensor x = random_tensor(cpu(), DType::bf16, {tokens, inputs}, 2);
    const OwnedTensor y = random_tensor(cpu(), DType::bf16, {tokens, outputs}, 3);
    const OwnedTensor biases = random_tensor(cpu(), DType::f32, {outputs}, 4);
    const OwnedTensor gpu_x = on_gpu(x), gpu_y = on_gpu(y), gpu_biases = on_gpu(biases);
    NmMatmulArgs args{.y = y, .x = x, .weight = host.view, .scale = scale};
    NmMatmulArgs gpu_args{.y = gpu_y, .x = gpu_x, .weight = device.view, .scale = scale};
    const auto compare = [&](const std::string& how) {
      for (const bool accumulate : {false, true}) {
        fill(cpu(), y, 1.0f);
        fill(gpu(), gpu_y, 1.0f);
        args.accumulate = gpu_args.accumulate = accumulate;
        nm_matmul(cpu(), args);
        nm_matmul(gpu(), gpu_args);
        expect_equal(gpu_y, y, inputs / 2 + 2, std::max(1.0f, scale), what + how);
      }
    };
    const cuda::CusparseltPlanned plan = cuda::cusparselt_plan(gpu(), gpu_args, algorithm);
    ASSERT_GE(plan.algorithm, 0) << what << ": " << plan.refusal;
    if (bias) {
      args.bias = biases;
      gpu_args.bias = gpu_biases;
      compare(", written first");  // that plan has no bias
      EXPECT_EQ(cuda::cusparselt_plan(gpu(), gpu_args, algorithm).algorithm, plan.algorithm) << what;
    }
    gpu_args.accumulate = false;
    compare("");
    // Values that change need nothing else, kept zeros keep their places, and the same operands give the same bits.
    fill_normal(host.values, 7);
    for (std::int64_t i = 0; i < host.values.view().count(); i += 3) store(host.values, i, 0.0);
    gpu().copy_from_host(device.view.values, host.values.view().data);
    args.accumulate = gpu_args.accumulate = false;
    nm_matmul(cpu(), args);
    nm_matmul(gpu(), gpu_args);
    expect_equal(gpu_y, y, inputs / 2 + 2, std::max(1.0f, scale), what + ", new values");
    const std::vector<double> first = values_of(on_cpu(gpu_y));
    for (int repeat = 0; repeat < 20; ++repeat) {
      nm_matmul(gpu(), gpu_args);
      ASSERT_EQ(values_of(on_cpu(gpu_y)), first) << what;
    }
  }
};

TEST_F(NmCusparselt, OurMetadataIsTheLibrarys) {
  for (const auto& [rows, columns] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {64, 64}, {128, 128}, {192, 320}, {256, 384}, {256, 512}, {768, 3072}, {1600, 6400}, {5120, 1024}}) {
    const std::string what = std::to_string(rows) + " x " + std::to_string(columns);
    // Without this the library would be compared with itself.
    EXPECT_EQ(cuda::cusparselt_order_unknown(gpu(), rows, columns), "") << what;
    const OwnedNm host(cpu(), DType::bf16, rows, columns, kPattern, 1);
    const Packed device = packed(host.view);
    const OwnedTensor ours = on_cpu(device.view.metadata);
    fill(gpu(), {device.view.metadata.data, DType::f32, {device.view.metadata.count() / 4}}, 1.0f);
    cuda::cusparselt_pack(gpu(), device.view, true);
    EXPECT_TRUE(same(device.view.metadata, ours)) << what;
    EXPECT_TRUE(same(device.view.values, host.values)) << "packing must leave the values alone";
  }
}

TEST_F(NmCusparselt, ProductsAgreeWithTheProcessor) {
  for (const std::int64_t tokens : {8, 64, 200})
    for (const std::int64_t inputs : {64, 192, 768})
      for (const std::int64_t outputs : {64, 320}) {
        check(tokens, inputs, outputs, true, 1.0f, cuda::kUsualAlgorithm);
      }
}

TEST_F(NmCusparselt, SearchedPlansAgreeWithTheProcessor) {
  check(256, 768, 768, false, 1.25f, cuda::kFastestAlgorithm);
  check(512, 1024, 3072, true, 1.0f, cuda::kFastestAlgorithm);
  check(512, 3072, 1024, false, -0.5f, cuda::kFastestAlgorithm);
}

TEST_F(NmCusparselt, APlanIsMadeOnceAndByNumber) {
  const OwnedNm host(cpu(), DType::bf16, 128, 256, kPattern, 1);
  const Packed device = packed(host.view);
  const OwnedTensor x = on_gpu(random_tensor(cpu(), DType::bf16, {64, 256}, 2));
  const OwnedTensor y = gpu().memory().tensor(Purpose::workspace, DType::bf16, {64, 128});
  const NmMatmulArgs args{.y = y, .x = x, .weight = device.view};
  const cuda::CusparseltShape shape{128, 256, 64};
  EXPECT_LT(cuda::cusparselt_planned(gpu(), shape).algorithm, 0);
  EXPECT_THROW(nm_matmul(gpu(), args), Error);
  const int found = cuda::cusparselt_plan(gpu(), args, cuda::kFastestAlgorithm).algorithm;
  ASSERT_GE(found, 0);
  EXPECT_EQ(cuda::cusparselt_planned(gpu(), shape).algorithm, found);
  nm_matmul(gpu(), args);
  const std::int64_t allocations = gpu().memory().allocations();
  EXPECT_EQ(cuda::cusparselt_plan(gpu(), args, cuda::kFastestAlgorithm).algorithm, found);
  nm_matmul(gpu(), args);
  EXPECT_EQ(gpu().memory().allocations(), allocations);
  // Another process, as in a resumed run, asks for it by its number.
  const auto other = Device::cuda();
  const OwnedTensor operands = other->memory().tensor(Purpose::workspace, DType::bf16, {64, 256});
  Packed again;
  const std::int64_t metadata = cuda::cusparselt_metadata_bytes(*other, 128, 256);
  again.storage = other->memory().tensor(Purpose::weights, DType::u8, {128 * 256 + metadata});
  other->copy(again.storage, device.storage);
  other->copy(operands, x);
  again.view = device.view;
  again.view.values.data = again.storage.view().data;
  again.view.metadata.data = static_cast<std::byte*>(again.storage.view().data) + 128 * 256;
  const OwnedTensor results = other->memory().tensor(Purpose::workspace, DType::bf16, {64, 128});
  const NmMatmulArgs same_args{.y = results, .x = operands, .weight = again.view};
  EXPECT_EQ(cuda::cusparselt_plan(*other, same_args, found).algorithm, found);
  nm_matmul(*other, same_args);
  other->synchronize();
  EXPECT_EQ(values_of(on_cpu(results)), values_of(on_cpu(y)));
}

TEST_F(NmCusparselt, WhatIsNotServedIsRefusedWithAReason) {
  EXPECT_NE(cuda::cusparselt_refuses(gpu(), 64, 64, {1, 4}, DType::bf16), "");
  EXPECT_NE(cuda::cusparselt_refuses(gpu(), 64, 64, kPattern, DType::f32), "");
  EXPECT_NE(cuda::cusparselt_refuses(gpu(), 64, 48, kPattern, DType::bf16), "");
  EXPECT_EQ(cuda::cusparselt_refuses(gpu(), 192, 320, kPattern, DType::bf16), "");
  const OwnedNm host(cpu(), DType::bf16, 64, 64, kPattern, 1);
  const Packed device = packed(host.view);
  const OwnedTensor x = on_gpu(random_tensor(cpu(), DType::bf16, {21, 64}, 2));
  const OwnedTensor y = gpu().memory().tensor(Purpose::workspace, DType::bf16, {21, 64});
  const cuda::CusparseltPlanned plan =
      cuda::cusparselt_plan(gpu(), {.y = y, .x = x, .weight = device.view}, cuda::kFastestAlgorithm);
  EXPECT_EQ(plan.algorithm, -1) << "the library takes whole 16 bytes of tokens";
  EXPECT_NE(plan.refusal, "");
  EXPECT_THROW(nm_matmul(gpu(), {.y = y, .x = x, .weight = matrix_on_gpu(host.view).view}), Error);
}

}  // namespace
}  // namespace filigree::testing
