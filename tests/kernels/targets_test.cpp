// Every instruction set that the vector kernels are compiled for and that this processor has gives the same results:
// AdamW bit for bit, the others to rounding. The other tests run on the best one alone.
#include <hwy/targets.h>

#include "kernels/activation/activation.h"
#include "kernels/adamw/adamw.h"
#include "kernels/attention/attention_paths.h"
#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/embedding/embedding.h"
#include "kernels/kernel_test.h"
#include "kernels/matmul/matmul.h"
#include "kernels/norm/norm.h"
#include "kernels/rotary/rotary.h"

namespace filigree::testing {
namespace {

// What `body` leaves in its result under each instruction set; the set chosen by default comes first.
template <typename Body>
std::vector<std::vector<double>> results_by_target(const Body& body) {
  std::vector<std::vector<double>> results = {body()};
  const auto supported = hwy::SupportedTargets();
  for (auto rest = supported; rest != 0; rest &= rest - 1) {
    const auto target = rest & ~(rest - 1);
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    results.push_back(body());
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(supported);
  return results;
}

template <typename Body>
void expect_equal_by_target(const Body& body) {
  const auto results = results_by_target(body);
  ASSERT_GT(results.size(), 1u);
  for (const auto& result : results) EXPECT_EQ(result, results[0]);
}

template <typename Body>
void expect_close_by_target(DType dtype, std::int64_t length, double magnitude, const Body& body) {
  const auto results = results_by_target(body);
  ASSERT_GT(results.size(), 1u);
  for (const auto& result : results)
    for (std::size_t i = 0; i < result.size(); ++i)
      ASSERT_NEAR(result[i], results[0][i], tolerance(dtype, length, magnitude)) << "element " << i;
}

TEST(Targets, AdamWIsBitEqual) {
  const auto device = Device::cpu();
  expect_equal_by_target([&] {
    const OwnedTensor p = random_tensor(*device, DType::f32, {1003}, 1),
                      g = random_tensor(*device, DType::f32, {1003}, 2);
    const OwnedTensor m = random_tensor(*device, DType::f32, {1003}, 3),
                      v = random_tensor(*device, DType::f32, {1003}, 4);
    for (std::int64_t i = 0; i < 1003; ++i) v.view().as<float>()[i] = std::abs(v.view().as<float>()[i]);
    adamw(*device, {.values = p,
                    .master = p.view().as<float>(),
                    .gradient = g.view().as<float>(),
                    .m = m.view().as<float>(),
                    .v = v.view().as<float>(),
                    .count = 1003,
                    .step = {.lr = 3e-3f, .clip = 0.7f, .bias_correction1 = 0.271f, .bias_correction2 = 0.1426f},
                    .decay = 0.1f});
    return values_of(p);
  });
}

TEST(Targets, ConversionAndEmbeddingAreBitEqual) {
  const auto device = Device::cpu();
  const OwnedTensor wide = random_tensor(*device, DType::f32, {41, 33}, 1);
  const OwnedTensor narrow = random_tensor(*device, DType::bf16, {41, 33}, 2);
  expect_equal_by_target([&] {
    convert(*device, narrow, wide);
    return values_of(narrow);
  });
  const OwnedTensor tokens = device->memory().tensor(Purpose::workspace, DType::i32, {2, 7});
  const OwnedTensor y = random_tensor(*device, DType::bf16, {2, 7, 33}, 3);
  expect_equal_by_target([&] {
    embedding_forward(*device, {.y = y, .tokens = tokens, .table = narrow, .positions = narrow, .start = 1});
    return values_of(y);
  });
}

TEST(Targets, PointwiseAndRowKernelsAgree) {
  const auto device = Device::cpu();
  const OwnedTensor x = random_tensor(*device, DType::f32, {5, 77}, 1),
                    y = random_tensor(*device, DType::f32, {5, 77}, 2);
  const OwnedTensor gain = random_tensor(*device, DType::f32, {77}, 3),
                    loss = random_tensor(*device, DType::f32, {5}, 4);
  const OwnedTensor targets = device->memory().tensor(Purpose::workspace, DType::i32, {5});
  expect_close_by_target(DType::f32, 1, 8.0, [&] {
    activation_forward(*device, {.kind = Activation::gelu, .y = y, .x = x});
    return values_of(y);
  });
  expect_close_by_target(DType::f32, 77, 1.0, [&] {
    norm_forward(*device, {.kind = NormKind::layer, .y = y, .x = x, .gain = gain});
    return values_of(y);
  });
  expect_close_by_target(DType::f32, 77, 1.0, [&] {
    fill_normal(y, 2);
    cross_entropy(*device, {.loss = loss, .logits = y, .targets = targets});
    return values_of(y);
  });
  const OwnedTensor qkv = random_tensor(*device, DType::f32, {1, 4, 60}, 5);
  const OwnedTensor table = device->memory().tensor(Purpose::workspace, DType::f32, {4, 10});
  rotary_table(table, 10000.0);
  expect_close_by_target(DType::f32, 2, 3.0, [&] {
    fill_normal(qkv, 5);
    rotary(*device, {.qkv = qkv, .table = table, .heads = 2, .kv_heads = 2});
    return values_of(qkv);
  });
}

TEST(Targets, ProductsAndAttentionAgree) {
  const auto device = Device::cpu();
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const OwnedTensor a = random_tensor(*device, dtype, {3, 100}, 1), b = random_tensor(*device, dtype, {21, 100}, 2);
    const OwnedTensor y = random_tensor(*device, dtype, {3, 21}, 3);
    expect_close_by_target(dtype, 100, 1.0, [&] {
      matmul(*device, {.y = y, .a = a, .b = b, .transpose_b = true});
      return values_of(y);
    });
    const OwnedTensor qkv = random_tensor(*device, dtype, {1, 70, 4 * 40}, 4),
                      dqkv = random_tensor(*device, dtype, {1, 70, 4 * 40}, 5);
    const OwnedTensor out = random_tensor(*device, dtype, {1, 70, 2 * 40}, 6),
                      dout = random_tensor(*device, dtype, {1, 70, 2 * 40}, 7);
    const OwnedTensor logsumexp = random_tensor(*device, DType::f32, {1, 2, 70}, 8);
    expect_close_by_target(dtype, 40, 1.0, [&] {
      attention_forward_vector(*device, {.out = out, .logsumexp = logsumexp, .qkv = qkv, .heads = 2, .kv_heads = 1});
      attention_backward_vector(
          *device,
          {.dqkv = dqkv, .dout = dout, .out = out, .logsumexp = logsumexp, .qkv = qkv, .heads = 2, .kv_heads = 1});
      return values_of(dqkv);
    });
  }
}

}  // namespace
}  // namespace filigree::testing
