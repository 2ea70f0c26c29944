// Bandwidth of the GPU kernels that are bound by memory, beside a copy on the device, at the shapes of GPT-2 124M and
// 1.5B:
//
//   filigree_cuda_bench --only norm --json docs/results/h200-kernels.json
//
// Random data; operands in as many sets as the second-level cache cannot hold, taken in turn; a batch of launches
// between two events, medians of batches. Bytes are those that the formula needs: each input once, each output once.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "benchmark/results.h"
#include "core/random.h"
#include "kernels/activation/activation.h"
#include "kernels/adamw/adamw.h"
#include "kernels/bandwidth_bench.h"
#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/decode_bench.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/embedding/embedding.h"
#include "kernels/nm_bandwidth_bench.h"
#include "kernels/norm/norm.h"
#include "kernels/rotary/rotary.h"

namespace filigree::bench {
namespace {

constexpr std::int64_t kSequence = 1024, kVocabulary = 50257;

std::string shape_name(const std::string& kernel, std::int64_t rows, std::int64_t columns) {
  return fmt::format("{}-{}x{}", kernel, rows, columns);
}

void bench_norm(BandwidthBench& bench, std::int64_t tokens, std::int64_t width) {
  const double array = 2.0 * static_cast<double>(tokens * width);
  const std::string forward = shape_name("norm-forward", tokens, width);
  const std::string backward = shape_name("norm-backward", tokens, width);
  if (!bench.wanted(forward) && !bench.wanted(backward)) return;
  const int sets = BandwidthBench::sets_for(4.0 * array);
  const auto x = bench.several(sets, {tokens, width}), residual = bench.several(sets, {tokens, width}),
             sum = bench.several(sets, {tokens, width}), y = bench.several(sets, {tokens, width});
  const auto gain = bench.several(4, {width}, DType::f32), statistics = bench.several(2, {tokens}, DType::f32);
  const auto at = [sets](const std::vector<OwnedTensor>& list, int i) {
    return list[static_cast<std::size_t>(i % sets)].view();
  };
  const double small = 8.0 * static_cast<double>(tokens + width);
  if (bench.wanted(forward))
    bench.time(forward, tokens, 4.0 * array + small, [&](int i) {
      norm_forward(bench.device(), {.y = at(y, i),
                                    .sum = at(sum, i),
                                    .mean = statistics[0],
                                    .rstd = statistics[1],
                                    .x = at(x, i),
                                    .residual = at(residual, i),
                                    .gain = gain[0],
                                    .bias = gain[1]});
    });
  if (bench.wanted(backward))
    bench.time(backward, tokens, 4.0 * array + small, [&](int i) {
      norm_backward(bench.device(), {.ds = at(sum, i),
                                     .dgain = gain[2],
                                     .dbias = gain[3],
                                     .dy = at(y, i),
                                     .sum = at(x, i),
                                     .mean = statistics[0],
                                     .rstd = statistics[1],
                                     .gain = gain[0]});
    });
}

void bench_activation(BandwidthBench& bench, std::int64_t tokens, std::int64_t width) {
  for (const auto& [kind, name] : {std::pair{Activation::gelu, "gelu"}, std::pair{Activation::swiglu, "swiglu"}}) {
    const std::string forward = shape_name(std::string(name) + "-forward", tokens, width);
    const std::string backward = shape_name(std::string(name) + "-backward", tokens, width);
    if (!bench.wanted(forward) && !bench.wanted(backward)) continue;
    const std::int64_t inputs = kind == Activation::swiglu ? 2 : 1;
    const double array = 2.0 * static_cast<double>(tokens * width), parts = static_cast<double>(inputs);
    const int sets = BandwidthBench::sets_for((1.0 + parts) * array);
    const auto x = bench.several(sets, {tokens, inputs * width}), dx = bench.several(sets, {tokens, inputs * width}),
               y = bench.several(sets, {tokens, width});
    const auto set = [sets](int i) { return static_cast<std::size_t>(i % sets); };
    if (bench.wanted(forward))
      bench.time(forward, tokens, (1.0 + parts) * array,
                 [&](int i) { activation_forward(bench.device(), {.kind = kind, .y = y[set(i)], .x = x[set(i)]}); });
    if (bench.wanted(backward))
      bench.time(backward, tokens, (1.0 + 2.0 * parts) * array, [&](int i) {
        activation_backward(bench.device(), {.kind = kind, .dx = dx[set(i)], .dy = y[set(i)], .x = x[set(i)]});
      });
  }
}

void bench_rotary(BandwidthBench& bench, std::int64_t tokens, std::int64_t width) {
  const std::string name = shape_name("rotary", tokens, width);
  if (!bench.wanted(name)) return;
  constexpr std::int64_t kSize = 64;
  const double turned = 2.0 * 2.0 * static_cast<double>(tokens * width);
  const int sets = BandwidthBench::sets_for(1.5 * turned);
  const auto qkv = bench.several(sets, {tokens / kSequence, kSequence, 3 * width});
  const auto host = Device::cpu();
  const OwnedTensor angles = host->memory().tensor(Purpose::data, DType::f32, {kSequence, kSize});
  rotary_table(angles, 10000.0);
  const OwnedTensor table = bench.random({kSequence, kSize}, DType::f32);
  bench.device().copy_from_host(table, angles.view().data);
  bench.time(name, tokens, 2.0 * turned, [&](int i) {
    const auto heads = static_cast<int>(width / kSize);
    rotary(bench.device(),
           {.qkv = qkv[static_cast<std::size_t>(i % sets)], .table = table, .heads = heads, .kv_heads = heads});
  });
}

void bench_embedding(BandwidthBench& bench, std::int64_t tokens, std::int64_t width) {
  const std::string forward = shape_name("embedding-forward", tokens, width);
  const std::string backward = shape_name("embedding-backward", tokens, width);
  if (!bench.wanted(forward) && !bench.wanted(backward)) return;
  // About as in a text: a token's frequency falls like 1 / its number.
  std::vector<std::int32_t> ids(static_cast<std::size_t>(tokens));
  const Random random(1, RandomPurpose::benchmark);
  for (std::size_t i = 0; i < ids.size(); ++i)
    ids[i] =
        static_cast<std::int32_t>(std::pow(static_cast<double>(kVocabulary), static_cast<double>(random.uniform(i)))) -
        1;
  const auto distinct = static_cast<double>(std::set<std::int32_t>(ids.begin(), ids.end()).size());
  Device& device = bench.device();
  const OwnedTensor on_device = device.memory().tensor(Purpose::workspace, DType::i32, {tokens / kSequence, kSequence});
  device.copy_from_host(on_device, ids.data());
  const double row = 2.0 * static_cast<double>(width), array = row * static_cast<double>(tokens);
  const int sets = BandwidthBench::sets_for(array);
  const auto y = bench.several(sets, {tokens / kSequence, kSequence, width});
  const OwnedTensor table = bench.random({kVocabulary, width}), places = bench.random({kSequence, width});
  const OwnedTensor dtable = bench.random({kVocabulary, width}, DType::f32);
  const OwnedTensor dplaces = bench.random({kSequence, width}, DType::f32);
  const auto set = [sets](int i) { return static_cast<std::size_t>(i % sets); };
  if (bench.wanted(forward))
    bench.time(forward, tokens, array + row * (distinct + kSequence), [&](int i) {
      embedding_forward(device, {.y = y[set(i)], .tokens = on_device, .table = table, .positions = places});
    });
  if (bench.wanted(backward))
    bench.time(backward, tokens, array + 4.0 * row * (distinct + kSequence), [&](int i) {
      embedding_backward(device, {.dtable = dtable, .dpositions = dplaces, .dy = y[set(i)], .tokens = on_device});
    });
}

void bench_column_sums(BandwidthBench& bench, std::int64_t tokens, std::int64_t width) {
  const std::string name = shape_name("column-sums", tokens, width);
  if (!bench.wanted(name)) return;
  const double bytes = 2.0 * static_cast<double>(tokens * width);
  const int sets = BandwidthBench::sets_for(bytes);
  const auto x = bench.several(sets, {tokens, width});
  const OwnedTensor sum = bench.random({width}, DType::f32);
  bench.time(name, tokens, bytes,
             [&](int i) { add_column_sums(bench.device(), sum, x[static_cast<std::size_t>(i % sets)]); });
}

void bench_cross_entropy(BandwidthBench& bench, std::int64_t tokens, std::int64_t vocabulary) {
  const std::string name = shape_name("cross-entropy", tokens, vocabulary);
  if (!bench.wanted(name)) return;
  Device& device = bench.device();
  const OwnedTensor logits = bench.random({tokens, vocabulary}), again = bench.random({tokens, vocabulary});
  const OwnedTensor loss = bench.random({tokens}, DType::f32);
  const OwnedTensor targets = device.memory().tensor(Purpose::workspace, DType::i32, {tokens});
  std::vector<std::int32_t> ids(static_cast<std::size_t>(tokens));
  const Random random(2, RandomPurpose::benchmark);
  for (std::size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<std::int32_t>(random.below(i, static_cast<std::uint32_t>(vocabulary)));
  device.copy_from_host(targets, ids.data());
  // The gradient takes the logits' place: each launch gets them anew.
  bench.time(
      name, tokens, 4.0 * static_cast<double>(tokens * vocabulary),
      [&](int) {
        cross_entropy(device, {.loss = loss, .logits = logits, .targets = targets, .scale = 1.0f / 65536.0f});
      },
      [&] { device.copy(logits, again); });
}

// All parameters of a GPT-2 model: AdamW with bf16 values, and the gradients' norm.
void bench_parameters(BandwidthBench& bench, const std::string& model, std::int64_t layers, std::int64_t width) {
  const std::string update = "adamw-" + model, norm = "sum-of-squares-" + model;
  if (!bench.wanted(update) && !bench.wanted(norm)) return;
  std::vector<std::int64_t> counts = {kVocabulary * width, kSequence * width, width, width};
  for (std::int64_t layer = 0; layer < layers; ++layer)
    for (const std::int64_t count : {3 * width * width, 3 * width, width * width, width, 4 * width * width, 4 * width,
                                     4 * width * width, width, width, width, width, width})
      counts.push_back(count);
  std::vector<OwnedTensor> values, fp32[4];  // master, gradient, m, v
  std::vector<AdamWArgs> updates;
  std::vector<Tensor> gradients;
  double elements = 0.0;
  for (const std::int64_t count : counts) {
    for (auto& list : fp32) list.push_back(bench.random({count}, DType::f32));
    values.push_back(bench.random({count}));
    fill(bench.device(), fp32[3].back(), 0.01f);
    gradients.push_back(fp32[1].back());
    updates.push_back({.values = values.back(),
                       .master = fp32[0].back().view().as<float>(),
                       .gradient = fp32[1].back().view().as<float>(),
                       .m = fp32[2].back().view().as<float>(),
                       .v = fp32[3].back().view().as<float>(),
                       .count = count,
                       .step = {.lr = 1e-5f},
                       .decay = count > 4 * width ? 0.1f : 0.0f});
    elements += static_cast<double>(count);
  }
  if (bench.wanted(update)) bench.time(update, 1, 30.0 * elements, [&](int) { adamw(bench.device(), updates); });
  if (bench.wanted(norm))
    bench.time(norm, 1, 4.0 * elements, [&](int) { (void)sum_of_squares(bench.device(), gradients); });
}

void run(const std::string& only, const std::string& json, const std::string& command) {
  check_results_file(json);
  const auto device = Device::cuda();
  fmt::print("{}\n", device->description());
  BandwidthBench bench(*device, only);
  for (const std::int64_t tokens : {16384, 65536})
    for (const std::int64_t width : {768, 1600}) {
      bench_norm(bench, tokens, width);
      bench_activation(bench, tokens, 4 * width);
      bench_rotary(bench, tokens, width);
      bench_embedding(bench, tokens, width);
      bench_column_sums(bench, tokens, 4 * width);
    }
  bench_norm(bench, 65536, 5120);
  bench_column_sums(bench, 65536, 768);
  bench_column_sums(bench, 65536, 5120);
  for (const std::int64_t vocabulary : {32000, 50257, 50304}) bench_cross_entropy(bench, 8192, vocabulary);
  bench_slope(bench, 3072, 768);
  bench_slope(bench, 6400, 1600);
  bench_slope(bench, 20480, 5120);
  bench_decode(bench);
  bench_parameters(bench, "gpt2-124m", 12, 768);
  bench_parameters(bench, "gpt2-1.5b", 48, 1600);
  if (json.empty()) return;
  std::vector<ResultRow> rows = bench.rows();
  compare_with(rows, "copy");
  ResultContext context = result_context(*device, {command});
  context.driver = fmt::format("CUDA {}.{}", device->gpu().driver / 1000, device->gpu().driver % 1000 / 10);
  write_results(json, context, rows);
}

}  // namespace
}  // namespace filigree::bench

int main(int argc, char** argv) {
  std::string only, json;
  CLI::App app("Bandwidth of the GPU kernels that are bound by memory");
  app.add_option("--only", only, "part of the names of the cases to time, e.g. norm or 65536x1600");
  app.add_option("--json", json, "file to write or extend");
  CLI11_PARSE(app, argc, argv);
  try {
    filigree::bench::run(only, json, "filigree_cuda_bench" + (only.empty() ? "" : " --only " + only));
  } catch (const filigree::Error& error) {
    fmt::print(stderr, "filigree_cuda_bench: {}\n", error.what());
    return 1;
  }
  return 0;
}
