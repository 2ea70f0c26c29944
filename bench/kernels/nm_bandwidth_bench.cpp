#include "kernels/nm_bandwidth_bench.h"

#include <fmt/format.h>

#include "kernels/nm/nm_cusparselt.h"
#include "kernels/nm/nm_matmul.h"
#include "kernels/nm/nm_pack.h"

namespace filigree::bench {
namespace {

constexpr Pattern kPattern{2, 4};

struct Matrix {
  OwnedTensor values, mask;
  NmMatrix view;
};

Matrix matrix(BandwidthBench& bench, std::int64_t rows, std::int64_t columns, DType dtype, std::uint32_t stream) {
  Device& device = bench.device();
  Matrix made{bench.random({rows, kept_columns(columns, kPattern)}, dtype),
              device.memory().tensor(Purpose::metadata, DType::u8, {rows, mask_bytes(columns)}),
              {}};
  made.view = {made.values, made.mask, rows, columns, kPattern};
  nm_select_random(device, made.mask, rows, columns, kPattern, Random(1, RandomPurpose::benchmark, stream));
  return made;
}

}  // namespace

void bench_slope(BandwidthBench& bench, std::int64_t outputs, std::int64_t inputs) {
  const auto name = [&](const char* kernel) { return fmt::format("{}-{}x{}", kernel, outputs, inputs); };
  const std::string prune = name("nm-double-prune"), expand = name("nm-expand"), compress = name("nm-compress"),
                    add = name("nm-compress-add"), pack = name("nm-metadata");
  const auto decode = [&](std::int64_t tokens) { return name(fmt::format("nm-decode-{}", tokens).c_str()); };
  constexpr std::int64_t kDecoded[] = {1, 4, 8, 16};
  bool wanted =
      bench.wanted(prune) || bench.wanted(expand) || bench.wanted(compress) || bench.wanted(add) || bench.wanted(pack);
  for (const std::int64_t tokens : kDecoded) wanted = wanted || bench.wanted(decode(tokens));
  if (!wanted) return;
  Device& device = bench.device();
  const double weights = static_cast<double>(outputs * inputs);
  const int sets = BandwidthBench::sets_for(2.25 * weights);
  std::vector<Matrix> forward, backward, gradients;
  for (int i = 0; i < sets; ++i) {
    const auto stream = static_cast<std::uint32_t>(i);
    forward.push_back(matrix(bench, outputs, inputs, DType::bf16, stream));
    backward.push_back(matrix(bench, inputs, outputs, DType::bf16, stream));
    gradients.push_back(matrix(bench, outputs, inputs, DType::f32, stream));
  }
  const auto halves = bench.several(sets, {outputs, inputs});
  const auto dense = bench.several(sets, {outputs, inputs}, DType::f32);
  const auto set = [sets](int i) { return static_cast<std::size_t>(i % sets); };
  if (bench.wanted(prune))
    bench.time(prune, 1, 2.25 * weights,
               [&](int i) { nm_double_prune(device, backward[set(i)].view, forward[set(i)].view, true, 0, outputs); });
  if (bench.wanted(expand))
    bench.time(expand, 1, 3.125 * weights, [&](int i) { nm_expand(device, halves[set(i)], forward[set(i)].view); });
  for (const bool accumulate : {false, true})
    if (bench.wanted(accumulate ? add : compress))
      bench.time(accumulate ? add : compress, 1, (accumulate ? 8.125 : 6.125) * weights,
                 [&](int i) { nm_compress(device, gradients[set(i)].view, dense[set(i)], accumulate); });
  for (const std::int64_t tokens : kDecoded) {
    if (!bench.wanted(decode(tokens))) continue;
    const OwnedTensor x = bench.random({tokens, inputs}, DType::bf16), y = bench.random({tokens, outputs}, DType::bf16);
    bench.time(decode(tokens), 1, 1.125 * weights,
               [&](int i) { nm_matmul(device, {.y = y, .x = x, .weight = forward[set(i)].view}); });
  }
  if (!bench.wanted(pack)) return;
  if (const std::string refusal = cuda::cusparselt_refuses(device, outputs, inputs, kPattern, DType::bf16);
      !refusal.empty()) {
    fmt::print("{}: {}\n", pack, refusal);
    return;
  }
  const OwnedTensor metadata =
      device.memory().tensor(Purpose::metadata, DType::u8, {cuda::cusparselt_metadata_bytes(device, outputs, inputs)});
  bench.time(pack, 1, 0.25 * weights, [&](int i) {
    NmMatrix packed = forward[set(i)].view;
    packed.metadata = metadata;
    cuda::cusparselt_pack(device, packed);
  });
}

}  // namespace filigree::bench
