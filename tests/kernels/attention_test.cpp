#include "kernels/attention/attention.h"

#include <cmath>

#include "kernels/kernel_test.h"

namespace filigree::testing {
namespace {

struct Case {
  DType dtype;
  std::int64_t sequences, positions, size;
  int heads, kv_heads;

  std::int64_t row() const { return (heads + 2 * kv_heads) * size; }
  std::int64_t query(std::int64_t token, std::int64_t head) const { return token * row() + head * size; }
  std::int64_t key(std::int64_t token, std::int64_t head) const {
    return token * row() + (heads + head * kv_heads / heads) * size;
  }
  std::int64_t value(std::int64_t token, std::int64_t head) const { return key(token, head) + kv_heads * size; }
};

void PrintTo(const Case& c, std::ostream* to) {
  *to << name_of(c.dtype) << " B" << c.sequences << " S" << c.positions << " D" << c.size << " H" << c.heads << " G"
      << c.kv_heads;
}

double dot(const std::vector<double>& a, std::int64_t at_a, const std::vector<double>& b, std::int64_t at_b,
           std::int64_t size) {
  double sum = 0.0;
  for (std::int64_t i = 0; i < size; ++i)
    sum += a[static_cast<std::size_t>(at_a + i)] * b[static_cast<std::size_t>(at_b + i)];
  return sum;
}

// The header's formula; `dqkv` is filled when `dout` is given.
struct Reference {
  std::vector<double> out, logsumexp, dqkv;

  Reference(const Case& c, const std::vector<double>& qkv, const std::vector<double>* dout = nullptr) {
    const std::int64_t tokens = c.sequences * c.positions;
    out.assign(static_cast<std::size_t>(tokens * c.heads * c.size), 0.0);
    logsumexp.assign(static_cast<std::size_t>(tokens * c.heads), 0.0);
    dqkv.assign(qkv.size(), 0.0);
    const double root = std::sqrt(static_cast<double>(c.size));
    for (std::int64_t b = 0; b < c.sequences; ++b)
      for (std::int64_t h = 0; h < c.heads; ++h)
        for (std::int64_t i = 0; i < c.positions; ++i) {
          const std::int64_t token = b * c.positions + i, out_at = (token * c.heads + h) * c.size;
          std::vector<double> p;
          for (std::int64_t j = 0; j <= i; ++j)
            p.push_back(dot(qkv, c.query(token, h), qkv, c.key(b * c.positions + j, h), c.size) / root);
          const double top = *std::max_element(p.begin(), p.end());
          double sum = 0.0;
          for (double& value : p) sum += value = std::exp(value - top);
          logsumexp[static_cast<std::size_t>((b * c.heads + h) * c.positions + i)] = top + std::log(sum);
          for (std::size_t j = 0; j < p.size(); ++j) {
            p[j] /= sum;
            const std::int64_t at = c.value(b * c.positions + static_cast<std::int64_t>(j), h);
            for (std::int64_t d = 0; d < c.size; ++d)
              out[static_cast<std::size_t>(out_at + d)] += p[j] * qkv[static_cast<std::size_t>(at + d)];
          }
          if (dout == nullptr) continue;
          const double delta = dot(*dout, out_at, out, out_at, c.size);
          for (std::size_t j = 0; j < p.size(); ++j) {
            const std::int64_t other = b * c.positions + static_cast<std::int64_t>(j);
            const double ds = p[j] * (dot(*dout, out_at, qkv, c.value(other, h), c.size) - delta) / root;
            for (std::int64_t d = 0; d < c.size; ++d) {
              const auto q = static_cast<std::size_t>(c.query(token, h) + d);
              const auto k = static_cast<std::size_t>(c.key(other, h) + d);
              dqkv[q] += ds * qkv[k];
              dqkv[k] += ds * qkv[q];
              dqkv[static_cast<std::size_t>(c.value(other, h) + d)] +=
                  p[j] * (*dout)[static_cast<std::size_t>(out_at + d)];
            }
          }
        }
  }
};

struct Tensors {
  OwnedTensor qkv, out, logsumexp, dout, dqkv;
  Tensors(Device& device, const Case& c)
      : qkv(random_tensor(device, c.dtype, {c.sequences, c.positions, c.row()}, 1)),
        out(random_tensor(device, c.dtype, {c.sequences, c.positions, c.heads * c.size}, 2)),
        logsumexp(random_tensor(device, DType::f32, {c.sequences, c.heads, c.positions}, 3)),
        dout(random_tensor(device, c.dtype, {c.sequences, c.positions, c.heads * c.size}, 4)),
        dqkv(random_tensor(device, c.dtype, {c.sequences, c.positions, c.row()}, 5)) {}
  void forward(Device& device, const Case& c) const {
    attention_forward(device,
                      {.out = out, .logsumexp = logsumexp, .qkv = qkv, .heads = c.heads, .kv_heads = c.kv_heads});
  }
  void backward(Device& device, const Case& c) const {
    attention_backward(device, {.dqkv = dqkv,
                                .dout = dout,
                                .out = out,
                                .logsumexp = logsumexp,
                                .qkv = qkv,
                                .heads = c.heads,
                                .kv_heads = c.kv_heads});
  }
};

// Rounding enters through the scores, sums over D of products of size 1 / sqrt(D), and stays of that relative size.
std::function<double(std::size_t)> magnitude(const Case& c, const std::vector<double>& expected) {
  return [&expected, root = std::sqrt(static_cast<double>(c.size))](std::size_t i) {
    return (std::abs(expected[i]) + 1.0) / root;
  };
}

class AttentionTest : public ::testing::TestWithParam<Case> {};

TEST_P(AttentionTest, ForwardAndBackwardMatchReference) {
  const Case c = GetParam();
  const auto device = Device::cpu();
  const Tensors tensors(*device, c);
  tensors.forward(*device, c);
  const std::vector<double> dout = values_of(tensors.dout);
  const Reference reference(c, values_of(tensors.qkv), &dout);
  expect_close(tensors.out, reference.out, c.size, magnitude(c, reference.out), "out");
  expect_close(tensors.logsumexp, reference.logsumexp, c.size, magnitude(c, reference.logsumexp), "logsumexp");
  tensors.backward(*device, c);
  // A key's gradient gathers over all later positions and the heads of its group.
  const std::int64_t gathered = c.size * (c.heads / c.kv_heads);
  expect_close(tensors.dqkv, reference.dqkv, gathered, magnitude(c, reference.dqkv), "dqkv");
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Case& c : {Case{dtype, 0, 4, 8, 2, 2}, Case{dtype, 1, 1, 1, 1, 1}, Case{dtype, 2, 5, 8, 4, 2},
                          Case{dtype, 1, 63, 64, 2, 1}, Case{dtype, 1, 64, 64, 1, 1}, Case{dtype, 2, 65, 64, 3, 3},
                          Case{dtype, 1, 129, 32, 4, 1}, Case{dtype, 1, 200, 40, 2, 2}, Case{dtype, 1, 33, 5, 6, 3},
                          Case{dtype, 1, 300, 80, 1, 1}, Case{dtype, 1, 150, 128, 2, 1}})
      all.push_back(c);
  return all;
}
INSTANTIATE_TEST_SUITE_P(Shapes, AttentionTest, ::testing::ValuesIn(cases()));

TEST(Attention, ReferenceGradientIsTheDerivative) {
  const Case c = {DType::f32, 1, 4, 3, 4, 2};
  const auto device = Device::cpu();
  const Tensors tensors(*device, c);
  std::vector<double> qkv = values_of(tensors.qkv);
  const std::vector<double> dout = values_of(tensors.dout);
  const Reference reference(c, qkv, &dout);
  for (std::size_t i = 0; i < qkv.size(); ++i) {
    const double expected = derivative(qkv, i, [&] {
      const Reference moved(c, qkv);
      return dot(moved.out, 0, dout, 0, static_cast<std::int64_t>(dout.size()));
    });
    EXPECT_NEAR(reference.dqkv[i], expected, 1e-9) << i;
  }
}

TEST(Attention, IsIndependentOfTheThreadCountAndOfLogsumexp) {
  const auto device = Device::cpu();
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Case c = {dtype, 2, 130, 64, 6, 3};
    const Tensors tensors(*device, c);
    expect_same_for_any_thread_count(tensors.out, [&] { tensors.forward(*device, c); });
    expect_same_for_any_thread_count(tensors.dqkv, [&] { tensors.backward(*device, c); });
    const std::vector<double> out = values_of(tensors.out);
    fill_normal(tensors.out, 9);
    attention_forward(*device, {.out = tensors.out, .qkv = tensors.qkv, .heads = c.heads, .kv_heads = c.kv_heads});
    EXPECT_EQ(values_of(tensors.out), out);
  }
}

TEST(Attention, SurvivesLargeScores) {
  const auto device = Device::cpu();
  const Case c = {DType::f32, 1, 70, 16, 1, 1};
  const Tensors tensors(*device, c);
  fill_normal(tensors.qkv, 1, 40.0);
  tensors.forward(*device, c);
  const Reference reference(c, values_of(tensors.qkv));
  // Scores of some thousands, rounded to 2^-12: probabilities are that exact, times values of 40.
  for (std::size_t i = 0; i < reference.out.size(); ++i)
    EXPECT_NEAR(values_of(tensors.out)[i], reference.out[i], 40.0 * 0x1p-9) << i;
}

class AttentionCachedTest : public ::testing::TestWithParam<Case> {};

TEST_P(AttentionCachedTest, PromptThenTokensEqualsTheWholeSequence) {
  const Case c = GetParam();
  const auto device = Device::cpu();
  const Tensors tensors(*device, c);
  const std::int64_t context = c.positions + 3, out_row = c.heads * c.size;
  const OwnedTensor keys = random_tensor(*device, c.dtype, {c.sequences, context, c.kv_heads * c.size}, 6);
  const OwnedTensor values = random_tensor(*device, c.dtype, {c.sequences, context, c.kv_heads * c.size}, 7);
  const Reference reference(c, values_of(tensors.qkv));
  const std::vector<double> qkv = values_of(tensors.qkv);
  const std::int64_t prompt = std::max<std::int64_t>(1, c.positions - 2);
  for (std::int64_t start = 0; start < c.positions;) {
    const std::int64_t count = start == 0 ? prompt : 1;
    const OwnedTensor part = random_tensor(*device, c.dtype, {c.sequences, count, c.row()}, 8);
    const OwnedTensor out = random_tensor(*device, c.dtype, {c.sequences, count, out_row}, 9);
    for (std::int64_t i = 0; i < part.view().count(); ++i) {
      const std::int64_t b = i / (count * c.row()), rest = i % (count * c.row());
      store(part, i, qkv[static_cast<std::size_t>((b * c.positions + start) * c.row() + rest)]);
    }
    attention_cached(*device, {.out = out,
                               .qkv = part,
                               .keys = keys,
                               .values = values,
                               .start = start,
                               .heads = c.heads,
                               .kv_heads = c.kv_heads});
    std::vector<double> expected;
    for (std::int64_t b = 0; b < c.sequences; ++b)
      for (std::int64_t i = 0; i < count * out_row; ++i)
        expected.push_back(reference.out[static_cast<std::size_t>((b * c.positions + start) * out_row + i)]);
    expect_close(out, expected, c.size, magnitude(c, expected), "out from " + std::to_string(start));
    start += count;
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, AttentionCachedTest,
                         ::testing::Values(Case{DType::f32, 1, 1, 4, 1, 1}, Case{DType::f32, 2, 9, 24, 4, 2},
                                           Case{DType::f32, 1, 70, 64, 4, 4}, Case{DType::bf16, 2, 9, 24, 4, 2},
                                           Case{DType::bf16, 3, 70, 64, 4, 1}));

TEST(Attention, RejectsWhatDoesNotFit) {
  const auto device = Device::cpu();
  const Case c = {DType::f32, 1, 4, 8, 4, 2};
  const Tensors tensors(*device, c);
  EXPECT_THROW(attention_forward(*device, {.out = tensors.out, .qkv = tensors.qkv, .heads = 4, .kv_heads = 3}), Error);
  EXPECT_THROW(attention_forward(*device, {.out = tensors.qkv, .qkv = tensors.qkv, .heads = 4, .kv_heads = 2}), Error);
  const OwnedTensor cache = random_tensor(*device, DType::f32, {1, 5, 16}, 1);
  EXPECT_THROW(attention_cached(*device, {.out = tensors.out,
                                          .qkv = tensors.qkv,
                                          .keys = cache,
                                          .values = cache,
                                          .start = 2,
                                          .heads = 4,
                                          .kv_heads = 2}),
               Error);
}

}  // namespace
}  // namespace filigree::testing
