#include <gmock/gmock.h>

#include <iostream>

#include "kernels/attention/attention_cuda.h"
#include "kernels/cuda_test.h"

namespace filigree::testing {
namespace {

using ::testing::StartsWith;

struct Case {
  DType dtype;
  std::int64_t sequences, positions, size;
  int heads, kv_heads;

  std::int64_t row() const { return (heads + 2 * kv_heads) * size; }
  // Rounding enters through the scores, sums over D of products of size 1 / sqrt(D), and stays of that relative size;
  // twice, because processor and GPU both round.
  std::function<double(std::size_t)> magnitude(const std::vector<double>& expected) const {
    return [&expected, root = std::sqrt(static_cast<double>(size))](std::size_t i) {
      return 2.0 * (std::abs(expected[i]) + 1.0) / root;
    };
  }
};

void PrintTo(const Case& c, std::ostream* to) {
  *to << name_of(c.dtype) << " B" << c.sequences << " S" << c.positions << " D" << c.size << " H" << c.heads << " G"
      << c.kv_heads;
}

// Inputs, and outputs full of other numbers.
struct Tensors {
  OwnedTensor qkv, out, logsumexp, dout, dqkv;

  Tensors(Device& device, const Case& c)
      : qkv(random_tensor(device, c.dtype, {c.sequences, c.positions, c.row()}, 1)),
        out(random_tensor(device, c.dtype, {c.sequences, c.positions, c.heads * c.size}, 2)),
        logsumexp(random_tensor(device, DType::f32, {c.sequences, c.heads, c.positions}, 3)),
        dout(random_tensor(device, c.dtype, {c.sequences, c.positions, c.heads * c.size}, 4)),
        dqkv(random_tensor(device, c.dtype, {c.sequences, c.positions, c.row()}, 5)) {}
  Tensors(OwnedTensor q, OwnedTensor o, OwnedTensor l, OwnedTensor d_out, OwnedTensor d_qkv)
      : qkv(std::move(q)), out(std::move(o)), logsumexp(std::move(l)), dout(std::move(d_out)), dqkv(std::move(d_qkv)) {}

  AttentionForwardArgs forward(const Case& c) const {
    return {.out = out, .logsumexp = logsumexp, .qkv = qkv, .heads = c.heads, .kv_heads = c.kv_heads};
  }
  AttentionBackwardArgs backward(const Case& c) const {
    return {.dqkv = dqkv,
            .dout = dout,
            .out = out,
            .logsumexp = logsumexp,
            .qkv = qkv,
            .heads = c.heads,
            .kv_heads = c.kv_heads};
  }
};

class AttentionCuda : public CudaTest {
 protected:
  Tensors copy(const Tensors& host) {
    return {on_gpu(host.qkv), on_gpu(host.out), on_gpu(host.logsumexp), on_gpu(host.dout), on_gpu(host.dqkv)};
  }
  void expect_near(const Case& c, const Tensor& on_gpu, const Tensor& reference, std::int64_t length,
                   const std::string& what) {
    const std::vector<double> expected = values_of(reference);
    expect_close(on_cpu(on_gpu), expected, length, c.magnitude(expected), what);
  }
  std::vector<double> values(const Tensor& on_gpu) { return values_of(on_cpu(on_gpu)); }
};

class AttentionCudaCases : public AttentionCuda, public ::testing::WithParamInterface<Case> {};

TEST_P(AttentionCudaCases, ForwardAndBackwardMatchTheProcessor) {
  const Case c = GetParam();
  const Tensors host(cpu(), c);
  attention_forward(cpu(), host.forward(c));
  attention_backward(cpu(), host.backward(c));
  // A key's gradient gathers over all later positions and the heads of its group.
  const std::int64_t gathered = c.size * (c.heads / c.kv_heads);
  for (const bool own : {false, true}) {
    const Tensors tensors = copy(Tensors(cpu(), c));
    const std::string who = own ? "own: " : cuda::attention_backend(gpu(), tensors.backward(c)) + ": ";
    const auto forward = own ? cuda::attention_forward_own : attention_forward;
    const auto backward = own ? cuda::attention_backward_own : attention_backward;
    forward(gpu(), tensors.forward(c));
    expect_near(c, tensors.out, host.out, c.size, who + "out");
    expect_near(c, tensors.logsumexp, host.logsumexp, c.size, who + "logsumexp");
    backward(gpu(), tensors.backward(c));
    expect_near(c, tensors.dqkv, host.dqkv, gathered, who + "dqkv");
  }
}

TEST_P(AttentionCudaCases, DeterministicCallsRepeatAndAllocateNothing) {
  const Case c = GetParam();
  gpu().set_deterministic(true);
  for (const bool own : {false, true}) {
    const Tensors first = copy(Tensors(cpu(), c)), second = copy(Tensors(cpu(), c));
    const auto forward = own ? cuda::attention_forward_own : attention_forward;
    const auto backward = own ? cuda::attention_backward_own : attention_backward;
    forward(gpu(), first.forward(c));
    backward(gpu(), first.backward(c));
    const std::int64_t allocations = gpu().memory().allocations();
    forward(gpu(), second.forward(c));
    backward(gpu(), second.backward(c));
    EXPECT_EQ(gpu().memory().allocations(), allocations);
    EXPECT_EQ(values(second.out), values(first.out)) << own;
    EXPECT_EQ(values(second.logsumexp), values(first.logsumexp)) << own;
    EXPECT_EQ(values(second.dqkv), values(first.dqkv)) << own;
  }
}

DType& type_of(Case& c) {
  return c.dtype;
}
template <typename AnyCase>
std::vector<AnyCase> in_both_types(std::vector<AnyCase> cases) {
  std::vector<AnyCase> all;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (AnyCase& c : cases) {
      type_of(c) = dtype;
      all.push_back(c);
    }
  return all;
}
constexpr DType kBoth = DType::f32;  // replaced by in_both_types
// Small ones suit compute-sanitizer's race check as well, where a large one takes minutes: --gtest_filter='Small/*'.
INSTANTIATE_TEST_SUITE_P(Small, AttentionCudaCases,
                         ::testing::ValuesIn(in_both_types<Case>({{kBoth, 1, 1, 16, 1, 1},
                                                                  {kBoth, 2, 5, 16, 4, 2},
                                                                  {kBoth, 1, 63, 64, 2, 1},
                                                                  {kBoth, 2, 64, 64, 3, 3},
                                                                  {kBoth, 1, 65, 64, 8, 2},
                                                                  {kBoth, 1, 129, 80, 4, 4},
                                                                  {kBoth, 1, 130, 40, 6, 3},
                                                                  {kBoth, 1, 70, 5, 2, 2},
                                                                  {kBoth, 1, 100, 256, 2, 1},
                                                                  {kBoth, 1, 90, 150, 2, 1}})));
INSTANTIATE_TEST_SUITE_P(Large, AttentionCudaCases,
                         ::testing::ValuesIn(in_both_types<Case>({{kBoth, 2, 300, 128, 4, 1}})));

// The shapes of training must not go to our own kernels unnoticed.
TEST_F(AttentionCuda, CudnnServesTheShapesOfTraining) {
  for (const bool deterministic : {false, true}) {
    gpu().set_deterministic(deterministic);
    for (const Case& c : {Case{DType::bf16, 2, 128, 16, 4, 4}, Case{DType::bf16, 4, 1024, 64, 12, 12},
                          Case{DType::bf16, 2, 1000, 64, 8, 2}, Case{DType::bf16, 2, 512, 80, 4, 4},
                          Case{DType::bf16, 1, 2048, 128, 8, 1}}) {
      const Tensors tensors = copy(Tensors(cpu(), c));
      AttentionForwardArgs without = tensors.forward(c);
      without.logsumexp = {};
      const std::string forward = cuda::attention_backend(gpu(), tensors.forward(c));
      const std::string backward = cuda::attention_backend(gpu(), tensors.backward(c));
      std::cout << ::testing::PrintToString(c) << (deterministic ? ", deterministic" : "") << ": forward " << forward
                << ", backward " << backward << "\n";
      EXPECT_THAT(forward, StartsWith("cuDNN")) << ::testing::PrintToString(c);
      EXPECT_THAT(backward, StartsWith("cuDNN")) << ::testing::PrintToString(c);
      EXPECT_THAT(cuda::attention_backend(gpu(), without), StartsWith("cuDNN")) << ::testing::PrintToString(c);
    }
  }
}

TEST_F(AttentionCuda, CudnnAndOwnKernelsAgree) {
  const Case c = {DType::bf16, 2, 777, 64, 6, 3};
  const Tensors host(cpu(), c), own = copy(host), cudnn = copy(host);
  if (!cuda::attention_forward_cudnn(gpu(), cudnn.forward(c)))
    GTEST_SKIP() << cuda::attention_backend(gpu(), cudnn.forward(c));
  cuda::attention_forward_own(gpu(), own.forward(c));
  expect_near(c, cudnn.out, on_cpu(own.out), c.size, "out");
  expect_near(c, cudnn.logsumexp, on_cpu(own.logsumexp), c.size, "logsumexp");
  ASSERT_TRUE(cuda::attention_backward_cudnn(gpu(), cudnn.backward(c)));
  cuda::attention_backward_own(gpu(), own.backward(c));
  expect_near(c, cudnn.dqkv, on_cpu(own.dqkv), 2 * c.size, "dqkv");
}

TEST_F(AttentionCuda, LogsumexpIsOptional) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Case c = {dtype, 2, 100, 64, 4, 2};
    const Tensors with = copy(Tensors(cpu(), c)), without = copy(Tensors(cpu(), c));
    AttentionForwardArgs args = without.forward(c);
    args.logsumexp = {};
    attention_forward(gpu(), with.forward(c));
    attention_forward(gpu(), args);
    const OwnedTensor reference = on_cpu(with.out);
    expect_near(c, without.out, reference, c.size, "out");
  }
}

TEST_F(AttentionCuda, AddressesThatCudnnRefusesAreServed) {
  const Case c = {DType::bf16, 1, 70, 64, 2, 2};
  const Tensors host(cpu(), c);
  attention_forward(cpu(), host.forward(c));
  const OwnedTensor room = random_tensor(cpu(), c.dtype, {host.qkv.view().count() + 1}, 6);
  std::copy_n(host.qkv.view().as<bf16>(), host.qkv.view().count(), room.view().as<bf16>() + 1);
  const OwnedTensor shifted = on_gpu(room), out = on_gpu(host.dout);
  const Tensor qkv = {shifted.view().as<bf16>() + 1, c.dtype, host.qkv.view().shape};
  const AttentionForwardArgs args = {.out = out, .qkv = qkv, .heads = c.heads, .kv_heads = c.kv_heads};
  EXPECT_THAT(cuda::attention_backend(gpu(), args), StartsWith("own"));
  attention_forward(gpu(), args);
  expect_near(c, out, host.out, c.size, "out");
}

TEST_F(AttentionCuda, SurvivesLargeScores) {
  const Case c = {DType::f32, 1, 70, 16, 1, 1};
  const Tensors host(cpu(), c);
  fill_normal(host.qkv, 1, 40.0);
  const Tensors tensors = copy(host);
  attention_forward(cpu(), host.forward(c));
  attention_forward(gpu(), tensors.forward(c));
  const std::vector<double> expected = values_of(host.out), found = values(tensors.out);
  // Scores of some thousands, rounded to 2^-12: probabilities are that exact, times values of 40.
  for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(found[i], expected[i], 2.0 * 40.0 * 0x1p-9) << i;
}

struct CachedCase {
  Case model;
  std::int64_t context;
  std::vector<std::int64_t> steps;  // new tokens of each call
};

void PrintTo(const CachedCase& c, std::ostream* to) {
  PrintTo(c.model, to);
  *to << " C" << c.context << " steps " << ::testing::PrintToString(c.steps);
}

class AttentionCachedCuda : public AttentionCuda, public ::testing::WithParamInterface<CachedCase> {};

TEST_P(AttentionCachedCuda, MatchesTheProcessorAndRepeats) {
  const auto& [c, context, steps] = GetParam();
  const Shape cache = {c.sequences, context, c.kv_heads * c.size};
  const OwnedTensor keys = random_tensor(cpu(), c.dtype, cache, 6), values_ = random_tensor(cpu(), c.dtype, cache, 7);
  const OwnedTensor gpu_keys = on_gpu(keys), gpu_values = on_gpu(values_);
  std::int64_t start = 0;
  std::uint32_t stream = 10;
  for (const std::int64_t count : steps) {
    const OwnedTensor qkv = random_tensor(cpu(), c.dtype, {c.sequences, count, c.row()}, ++stream);
    const OwnedTensor out = random_tensor(cpu(), c.dtype, {c.sequences, count, c.heads * c.size}, ++stream);
    const OwnedTensor gpu_qkv = on_gpu(qkv), gpu_out = on_gpu(out), again = on_gpu(out);
    AttentionCachedArgs args = {.out = out,
                                .qkv = qkv,
                                .keys = keys,
                                .values = values_,
                                .start = start,
                                .heads = c.heads,
                                .kv_heads = c.kv_heads};
    attention_cached(cpu(), args);
    args.out = gpu_out;
    args.qkv = gpu_qkv;
    args.keys = gpu_keys;
    args.values = gpu_values;
    attention_cached(gpu(), args);
    const std::string what = std::to_string(count) + " from " + std::to_string(start);
    expect_near(c, gpu_out, out, c.size, what);
    args.out = again;
    attention_cached(gpu(), args);
    EXPECT_EQ(values(again), values(gpu_out)) << what;
    start += count;
  }
  EXPECT_EQ(values(gpu_keys), values_of(keys));
  EXPECT_EQ(values(gpu_values), values_of(values_));
}

DType& type_of(CachedCase& c) {
  return c.model.dtype;
}
INSTANTIATE_TEST_SUITE_P(
    Small, AttentionCachedCuda,
    ::testing::ValuesIn(in_both_types<CachedCase>({{{kBoth, 1, 0, 4, 1, 1}, 5, {1, 1, 2}},
                                                   {{kBoth, 2, 0, 24, 4, 2}, 60, {9, 1, 1, 20, 1, 16}},
                                                   {{kBoth, 1, 0, 33, 6, 2}, 90, {40, 1, 4, 17}},
                                                   {{kBoth, 1, 0, 256, 3, 1}, 100, {70, 1, 2}},
                                                   {{kBoth, 40, 0, 64, 32, 32}, 20, {3, 1}}})));
INSTANTIATE_TEST_SUITE_P(
    Large, AttentionCachedCuda,
    ::testing::ValuesIn(in_both_types<CachedCase>({{{kBoth, 1, 0, 64, 4, 4}, 1500, {1300, 1, 1, 3, 100, 1}},
                                                   {{kBoth, 3, 0, 80, 10, 2}, 300, {17, 1, 64, 1, 130, 5}},
                                                   {{kBoth, 2, 0, 128, 8, 1}, 200, {100, 1, 16, 1}}})));

TEST_F(AttentionCuda, RefusesHeadsThatAreTooLarge) {
  const Case c = {DType::f32, 1, 4, 264, 1, 1};
  const Tensors tensors = copy(Tensors(cpu(), c));
  EXPECT_THROW(attention_forward(gpu(), tensors.forward(c)), Error);
  EXPECT_THROW(attention_backward(gpu(), tensors.backward(c)), Error);
}

}  // namespace
}  // namespace filigree::testing
