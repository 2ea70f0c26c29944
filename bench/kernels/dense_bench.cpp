// Speed of the dense CPU kernels, at the shapes of GPT-2 124M and of the quickstart model.
//
//   filigree_dense_bench [matmul] [attention] [vector] [cpu-time]
//
// Prints the median of several runs and the spread. Random operands; warm-up first. With cpu-time the process's
// processor time is taken instead of the clock's: on a busy machine, with OMP_NUM_THREADS=1, it still says what a core
// does.
#include <fmt/core.h>

#include <time.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/random.h"
#include "kernels/activation/activation.h"
#include "kernels/adamw/adamw.h"
#include "kernels/attention/attention.h"
#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/embedding/embedding.h"
#include "kernels/matmul/matmul.h"
#include "kernels/norm/norm.h"

namespace {

using namespace filigree;

OwnedTensor random_tensor(Device& device, DType dtype, Shape shape) {
  OwnedTensor tensor = device.memory().tensor(Purpose::workspace, dtype, shape);
  const Random random(1, RandomPurpose::benchmark);
  for (std::int64_t i = 0; i < tensor.view().count(); ++i) {
    const float value = 2.0f * random.uniform(static_cast<std::uint64_t>(i & 0xffff)) - 1.0f;
    if (dtype == DType::f32) tensor.view().as<float>()[i] = value;
    if (dtype == DType::bf16) tensor.view().as<bf16>()[i] = bf16(value);
  }
  return tensor;
}

struct Timing {
  double median, low, high;  // seconds
};

class Bench {
 public:
  Bench(bool cpu_time) : clock_(cpu_time ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC) {}

  template <typename Body>
  Timing measure(Body&& body) const {
    body();
    std::vector<double> times;
    const double begin = now();
    while (times.size() < 5 || (times.size() < 50 && now() - begin < 0.3)) {
      const double start = now();
      body();
      times.push_back(now() - start);
    }
    std::sort(times.begin(), times.end());
    return {times[times.size() / 2], times.front(), times.back()};
  }

 private:
  double now() const {
    timespec time;
    clock_gettime(clock_, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }

  clockid_t clock_;
};

void print(const std::string& what, const Timing& time, double work, const char* unit) {
  fmt::print("{:<44} {:9.3f} ms  {:8.1f} {}  (spread {:.3f} to {:.3f} ms)\n", what, time.median * 1e3,
             work / time.median * 1e-9, unit, time.low * 1e3, time.high * 1e3);
}

void bench_matmul(Device& device, const Bench& bench) {
  struct Case {
    std::int64_t rows, columns, depth;  // T, N, K of a linear layer
  };
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Case& c :
         {Case{4096, 768, 256}, Case{4096, 256, 256}, Case{4096, 1024, 256}, Case{4096, 256, 1024},
          Case{4096, 2304, 768}, Case{4096, 768, 768}, Case{4096, 3072, 768}, Case{4096, 768, 3072}, Case{1, 768, 768},
          Case{1, 3072, 768}, Case{4, 3072, 768}, Case{8, 3072, 768}, Case{1, 50257, 768}}) {
      const auto [rows, columns, depth] = c;
      const OwnedTensor x = random_tensor(device, dtype, {rows, depth});
      const OwnedTensor w = random_tensor(device, dtype, {columns, depth});
      const OwnedTensor y = random_tensor(device, dtype, {rows, columns});
      const double work = 2.0 * static_cast<double>(rows * columns * depth);
      const std::string name = fmt::format("{} T{} N{} K{}", name_of(dtype), rows, columns, depth);
      const Timing forward = bench.measure([&] { matmul(device, {.y = y, .a = x, .b = w, .transpose_b = true}); });
      print(name + " forward", forward, work, "GFLOP/s");
      if (rows <= 8) {
        print(name + " weights", forward, static_cast<double>(w.view().bytes()), "GB/s");
        continue;
      }
      const OwnedTensor dx = random_tensor(device, dtype, {rows, depth});
      const OwnedTensor dw = random_tensor(device, DType::f32, {columns, depth});
      print(name + " dX", bench.measure([&] { matmul(device, {.y = dx, .a = y, .b = w}); }), work, "GFLOP/s");
      print(name + " dW +=",
            bench.measure([&] { matmul(device, {.y = dw, .a = y, .b = x, .transpose_a = true, .accumulate = true}); }),
            work, "GFLOP/s");
    }
}

void bench_attention(Device& device, const Bench& bench) {
  struct Case {
    std::int64_t sequences, positions, size;
    int heads;
  };
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const auto& [sequences, positions, size, heads] :
         {Case{16, 256, 64, 4}, Case{4, 1024, 64, 12}, Case{1, 1024, 128, 8}}) {
      const OwnedTensor qkv = random_tensor(device, dtype, {sequences, positions, 3 * heads * size});
      const OwnedTensor dqkv = random_tensor(device, dtype, {sequences, positions, 3 * heads * size});
      const OwnedTensor out = random_tensor(device, dtype, {sequences, positions, heads * size});
      const OwnedTensor dout = random_tensor(device, dtype, {sequences, positions, heads * size});
      const OwnedTensor logsumexp = random_tensor(device, DType::f32, {sequences, heads, positions});
      // Two products forward and five backward over the causal half.
      const double product = static_cast<double>(sequences * heads * positions * positions * size);
      const std::string name =
          fmt::format("{} attention B{} S{} D{} H{}", name_of(dtype), sequences, positions, size, heads);
      print(name + " forward", bench.measure([&] {
        attention_forward(device, {.out = out, .logsumexp = logsumexp, .qkv = qkv, .heads = heads, .kv_heads = heads});
      }),
            2 * product, "GFLOP/s");
      print(name + " backward", bench.measure([&] {
        attention_backward(device, {.dqkv = dqkv,
                                    .dout = dout,
                                    .out = out,
                                    .logsumexp = logsumexp,
                                    .qkv = qkv,
                                    .heads = heads,
                                    .kv_heads = heads});
      }),
            5 * product, "GFLOP/s");
    }
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const OwnedTensor qkv = random_tensor(device, dtype, {1, 1, 3 * 768});
    const OwnedTensor keys = random_tensor(device, dtype, {1, 1024, 768});
    const OwnedTensor values = random_tensor(device, dtype, {1, 1024, 768});
    const OwnedTensor out = random_tensor(device, dtype, {1, 1, 768});
    print(fmt::format("{} attention decode C1024 D64 H12", name_of(dtype)), bench.measure([&] {
      attention_cached(
          device, {.out = out, .qkv = qkv, .keys = keys, .values = values, .start = 1023, .heads = 12, .kv_heads = 12});
    }),
          static_cast<double>(keys.view().bytes() + values.view().bytes()), "GB/s");
  }
}

void bench_vector(Device& device, const Bench& bench) {
  constexpr std::int64_t kTokens = 8192, kWidth = 768, kHidden = 3072, kVocabulary = 50257, kChunk = 512;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const std::string type(name_of(dtype));
    const OwnedTensor x = random_tensor(device, dtype, {kTokens, kWidth}),
                      y = random_tensor(device, dtype, {kTokens, kWidth});
    const OwnedTensor sum = random_tensor(device, dtype, {kTokens, kWidth});
    const OwnedTensor mean = random_tensor(device, DType::f32, {kTokens}),
                      rstd = random_tensor(device, DType::f32, {kTokens});
    const OwnedTensor gain = random_tensor(device, DType::f32, {kWidth}),
                      bias = random_tensor(device, DType::f32, {kWidth});
    const auto bytes = [](std::initializer_list<const OwnedTensor*> tensors) {
      double total = 0;
      for (const OwnedTensor* tensor : tensors) total += static_cast<double>(tensor->view().bytes());
      return total;
    };
    print(type + " layernorm + residual", bench.measure([&] {
      norm_forward(
          device,
          {.y = y, .sum = sum, .mean = mean, .rstd = rstd, .x = x, .residual = sum, .gain = gain, .bias = bias});
    }),
          bytes({&x, &sum, &sum, &y}), "GB/s");
    const OwnedTensor dgain = random_tensor(device, DType::f32, {kWidth}),
                      dbias = random_tensor(device, DType::f32, {kWidth});
    print(type + " layernorm backward", bench.measure([&] {
      norm_backward(
          device,
          {.ds = sum, .dgain = dgain, .dbias = dbias, .dy = y, .sum = x, .mean = mean, .rstd = rstd, .gain = gain});
    }),
          bytes({&x, &sum, &sum, &y}), "GB/s");
    const OwnedTensor hidden = random_tensor(device, dtype, {kTokens, kHidden}),
                      dhidden = random_tensor(device, dtype, {kTokens, kHidden});
    print(type + " gelu", bench.measure([&] { activation_forward(device, {.y = dhidden, .x = hidden}); }),
          bytes({&hidden, &dhidden}), "GB/s");
    print(type + " gelu backward",
          bench.measure([&] { activation_backward(device, {.dx = dhidden, .dy = dhidden, .x = hidden}); }),
          bytes({&hidden, &dhidden, &dhidden}), "GB/s");
    const OwnedTensor db = random_tensor(device, DType::f32, {kHidden});
    print(type + " column sums", bench.measure([&] { add_column_sums(device, db, hidden); }), bytes({&hidden}), "GB/s");
    print(type + " add", bench.measure([&] { add(device, dhidden, hidden); }), bytes({&hidden, &dhidden, &dhidden}),
          "GB/s");
    const OwnedTensor wide = random_tensor(device, DType::f32, {kTokens, kHidden});
    print(type + " convert from fp32", bench.measure([&] { convert(device, hidden, wide); }), bytes({&hidden, &wide}),
          "GB/s");
    print(type + " sum of squares", bench.measure([&] { (void)sum_of_squares(device, hidden); }), bytes({&hidden}),
          "GB/s");
    const OwnedTensor logits = random_tensor(device, dtype, {kChunk, kVocabulary}),
                      loss = random_tensor(device, DType::f32, {kChunk});
    const OwnedTensor targets = random_tensor(device, DType::i32, {kChunk});
    print(type + " cross-entropy of 512 x 50257", bench.measure([&] {
      cross_entropy(device, {.loss = loss, .logits = logits, .targets = targets, .scale = 1.0f});
    }),
          2 * bytes({&logits}), "GB/s");
    const OwnedTensor table = random_tensor(device, dtype, {kVocabulary, kWidth}),
                      dtable = random_tensor(device, DType::f32, {kVocabulary, kWidth});
    const OwnedTensor tokens = random_tensor(device, DType::i32, {8, 1024});
    const Random random(2, RandomPurpose::benchmark);
    for (std::int64_t i = 0; i < kTokens; ++i)
      tokens.view().as<std::int32_t>()[i] =
          static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(i), kVocabulary));
    const Tensor rows = y.view().reshaped({8, 1024, kWidth});
    print(type + " embedding",
          bench.measure([&] { embedding_forward(device, {.y = rows, .tokens = tokens, .table = table}); }),
          2 * bytes({&y}), "GB/s");
    print(type + " embedding backward",
          bench.measure([&] { embedding_backward(device, {.dtable = dtable, .dy = rows, .tokens = tokens}); }),
          bytes({&y}) + 2.0 * static_cast<double>(kTokens * kWidth * 4), "GB/s");
    const OwnedTensor m = random_tensor(device, DType::f32, {kVocabulary, kWidth}),
                      v = random_tensor(device, DType::f32, {kVocabulary, kWidth});
    const OwnedTensor master = random_tensor(device, DType::f32, {kVocabulary, kWidth});
    print(type + " adamw", bench.measure([&] {
      adamw(device, {.values = dtype == DType::f32 ? master.view() : table.view(),
                     .master = master.view().as<float>(),
                     .gradient = dtable.view().as<float>(),
                     .m = m.view().as<float>(),
                     .v = v.view().as<float>(),
                     .count = kVocabulary * kWidth,
                     .step = {.lr = 1e-6f}});
    }),
          bytes({&master, &master, &dtable, &m, &m, &v, &v}) + (dtype == DType::bf16 ? bytes({&table}) : 0.0), "GB/s");
  }
}

}  // namespace

int main(int count, char** arguments) {
  const auto device = Device::cpu();
  fmt::print("{}\n", device->description());
  const std::vector<std::string> wanted(arguments + 1, arguments + count);
  const auto given = [&](const char* name) { return std::find(wanted.begin(), wanted.end(), name) != wanted.end(); };
  const bool all = !given("matmul") && !given("attention") && !given("vector");
  const Bench bench(given("cpu-time"));
  if (all || given("matmul")) bench_matmul(*device, bench);
  if (all || given("attention")) bench_attention(*device, bench);
  if (all || given("vector")) bench_vector(*device, bench);
}
