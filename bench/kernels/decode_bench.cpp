#include "kernels/decode_bench.h"

#include <fmt/format.h>

#include <functional>

#include "core/cuda_error.h"
#include "kernels/block/block_mask.h"
#include "kernels/block_bench_device.h"
#include "kernels/decode_variants.h"
#include "kernels/dense_cublaslt.h"
#include "kernels/nm/nm_matmul.h"
#include "kernels/nm/nm_pack.h"

namespace filigree::bench {
namespace {

constexpr Pattern kPattern{2, 4};
constexpr double kDensity = 0.5;

struct Shape13B {
  const char* layer;
  std::int64_t outputs, inputs;
};
constexpr Shape13B kShapes[] = {{"qkv", 15360, 5120}, {"out", 5120, 5120}, {"up", 20480, 5120}, {"down", 5120, 20480}};

class DecodeCase {
 public:
  DecodeCase(BandwidthBench& bench, const Shape13B& shape, std::int64_t tokens)
      : bench_(bench),
        shape_(shape),
        tokens_(tokens),
        weights_(static_cast<double>(shape.outputs * shape.inputs)),
        sets_(BandwidthBench::sets_for(weights_)),
        x_(bench.random({tokens, shape.inputs})),
        y_(bench.random({tokens, shape.outputs})),
        expected_(bench.random({tokens, shape.outputs})),
        dense_(bench.several(sets_, {shape.outputs, shape.inputs})),
        product_(Product::forward, tokens, shape.outputs, shape.inputs, operands(y_, dense_[0]),
                 bench.device().stream()) {}

  void dense() {
    const auto launch = [&](int i) { product_.run(operands(y_, dense_[set(i)]), stream()); };
    bench_.time(name("dense"), tokens_, 2.0 * weights_, launch);
  }

  void sparse_24() {
    std::vector<OwnedTensor> values, masks;
    for (int i = 0; i < sets_; ++i) {
      values.push_back(bench_.random({shape_.outputs, kept_columns(shape_.inputs, kPattern)}));
      masks.push_back(
          device().memory().tensor(Purpose::metadata, DType::u8, {shape_.outputs, mask_bytes(shape_.inputs)}));
      nm_select_random(device(), masks.back(), shape_.outputs, shape_.inputs, kPattern,
                       Random(1, RandomPurpose::benchmark, static_cast<std::uint32_t>(i)));
    }
    const auto matrix = [&](int i) {
      return NmMatrix{values[set(i)], masks[set(i)], shape_.outputs, shape_.inputs, kPattern};
    };
    nm_expand(device(), dense_[0], matrix(0));
    product_.run(operands(expected_, dense_[0]), stream());
    const auto args = [&](int i) { return NmMatmulArgs{.y = y_, .x = x_, .weight = matrix(i)}; };
    time("24", 1.125, [&](int i) { nm_matmul(device(), args(i)); });
    for (const DecodeVariant& variant : decode_variants())
      time(fmt::format("24-{}", variant.name), 1.125, [&](int i) { variant.multiply_24(args(i), stream()); });
  }

  void blocks() {
    const BlockGrid grid{.rows = shape_.outputs, .columns = shape_.inputs};
    const BlockLists lists = make_block_lists(grid, balanced_block_mask(grid, kDensity, 1, 0));
    const auto upload = [&](const void* from, std::size_t bytes) {
      OwnedTensor tensor =
          device().memory().tensor(Purpose::metadata, DType::i32, {static_cast<std::int64_t>(bytes / 4)});
      device().copy_from_host(tensor, from);
      return tensor;
    };
    const OwnedTensor start = upload(lists.row_start.data(), lists.row_start.size() * sizeof(std::int32_t));
    const OwnedTensor entries = upload(lists.row_entries.data(), lists.row_entries.size() * sizeof(BlockEntry));
    const auto values = bench_.several(sets_, {lists.blocks(), grid.block_elements()});
    BlockForwardArgs args = {.y = y_.view().data,
                             .x = x_.view().data,
                             .tokens = tokens_,
                             .grid = grid,
                             .lists = {.row_start = start.view().as<std::int32_t>(),
                                       .row_entries = static_cast<const BlockEntry*>(entries.view().data),
                                       .blocks = lists.blocks()},
                             .settled = true};
    const auto args_of = [&](int i) {
      args.values = values[set(i)].view().data;
      return args;
    };
    expand_blocks(dense_[0].view().data, values[0].view().data, grid, args.lists, stream());
    product_.run(operands(expected_, dense_[0]), stream());
    const BlockPlan plan = plan_block_forward(grid, tokens_, block_gpu());
    const double bytes = 2.0 * kDensity;
    time("block", bytes, [&](int i) { block_forward(args_of(i), plan, stream()); });
    for (const DecodeVariant& variant : decode_variants())
      time(fmt::format("block-{}", variant.name), bytes, [&](int i) { variant.multiply_blocks(args_of(i), stream()); });
  }

 private:
  Device& device() const { return bench_.device(); }
  cudaStream_t stream() const { return bench_.device().stream(); }
  std::size_t set(int i) const { return static_cast<std::size_t>(i % sets_); }
  DenseOperands operands(const OwnedTensor& out, const OwnedTensor& weight) const {
    return {out.view().data, x_.view().data, weight.view().data};
  }
  std::string name(const std::string& method) const {
    return fmt::format("13b-{}-{}-{}", shape_.layer, tokens_, method);
  }

  // `bytes`: of a weight. The first set's result is expected_.
  void time(const std::string& method, double bytes, const std::function<void(int)>& launch) {
    if (!bench_.wanted(name(method))) return;
    check(cudaMemsetAsync(y_.view().data, 0xff, static_cast<std::size_t>(y_.view().count()) * 2, stream()));
    launch(0);
    const double error =
        relative_error(y_.view().data, expected_.view().data, DType::bf16, y_.view().count(), stream());
    if (!(error < 1e-2))
      throw Error(fmt::format("{} differs from the dense product of the same matrix by {:.2e}", name(method), error));
    bench_.time(name(method), tokens_, bytes * weights_, launch);
  }

  BandwidthBench& bench_;
  const Shape13B& shape_;
  std::int64_t tokens_;
  double weights_;
  int sets_;
  OwnedTensor x_, y_, expected_;
  std::vector<OwnedTensor> dense_;
  DenseProduct product_;
};

}  // namespace

void bench_decode(BandwidthBench& bench) {
  const SettledWeights settled(bench.device());  // as in decoding
  for (const Shape13B& shape : kShapes)
    for (const std::int64_t tokens : {1, 4, 16}) {
      const std::string prefix = fmt::format("13b-{}-{}-", shape.layer, tokens);
      bool wanted = false;
      for (const char* method : {"dense", "24", "block"}) wanted = wanted || bench.wanted(prefix + method);
      if (!wanted) continue;
      DecodeCase one(bench, shape, tokens);
      if (bench.wanted(prefix + "dense")) one.dense();
      one.sparse_24();
      one.blocks();
    }
}

}  // namespace filigree::bench
