// Checks, and the choice of the path.
#include "kernels/amx_tiles.h"
#include "kernels/attention/attention_paths.h"

namespace filigree {
namespace {

bool takes_amx(const AttentionShape& shape, DType dtype) {
  return dtype == DType::bf16 && shape.size % 32 == 0 && amx_usable();
}

}  // namespace

AttentionShape attention_shape(const Tensor& qkv, int heads, int kv_heads) {
  require(qkv.shape.rank() == 3, "attention: qkv is (B, S, (H + 2G)·D)");
  require(heads > 0 && kv_heads > 0 && heads % kv_heads == 0, "attention: heads must be a multiple of key/value heads");
  const std::int64_t columns = qkv.shape[2], parts = heads + 2 * static_cast<std::int64_t>(kv_heads);
  require(columns % parts == 0 && columns > 0, "attention: qkv's width is not (heads + 2 kv_heads) times a head size");
  return {qkv.shape[0], qkv.shape[1], heads, kv_heads, columns / parts};
}

void attention_forward(Device& device, const AttentionForwardArgs& args) {
  const AttentionShape shape = attention_shape(args.qkv, args.heads, args.kv_heads);
  const std::int64_t tokens = shape.sequences * shape.positions;
  require(args.out.count() == tokens * shape.out_row() && args.out.dtype == args.qkv.dtype,
          "attention_forward: out and qkv do not fit each other");
  if (tokens == 0) return;
  require(args.logsumexp.empty() || args.logsumexp.count() == tokens * shape.heads,
          "attention_forward: logsumexp is (B, H, S)");
  if constexpr (kBuiltWithCuda)
    if (device.is_cuda()) return cuda::attention_forward(device, args);
  if (takes_amx(shape, args.qkv.dtype)) return attention_forward_amx(device, args);
  attention_forward_vector(device, args);
}

void attention_backward(Device& device, const AttentionBackwardArgs& args) {
  const AttentionShape shape = attention_shape(args.qkv, args.heads, args.kv_heads);
  const std::int64_t tokens = shape.sequences * shape.positions;
  require(args.dqkv.shape == args.qkv.shape && args.dqkv.dtype == args.qkv.dtype &&
              args.out.count() == tokens * shape.out_row() && args.out.dtype == args.qkv.dtype &&
              args.dout.count() == args.out.count() && args.dout.dtype == args.out.dtype &&
              args.logsumexp.count() == tokens * shape.heads,
          "attention_backward: dqkv, dout, out, logsumexp and qkv do not fit each other");
  if (tokens == 0) return;
  if constexpr (kBuiltWithCuda)
    if (device.is_cuda()) return cuda::attention_backward(device, args);
  if (takes_amx(shape, args.qkv.dtype)) return attention_backward_amx(device, args);
  attention_backward_vector(device, args);
}

void attention_cached(Device& device, const AttentionCachedArgs& args) {
  const AttentionShape shape = attention_shape(args.qkv, args.heads, args.kv_heads);
  const std::int64_t tokens = shape.sequences * shape.positions;
  require(args.out.count() == tokens * shape.out_row() && args.out.dtype == args.qkv.dtype,
          "attention_cached: out and qkv do not fit each other");
  require(args.keys.shape.rank() == 3 && args.keys.shape == args.values.shape &&
              args.keys.shape[0] == shape.sequences && args.keys.shape[2] == shape.kv_heads * shape.size &&
              args.keys.dtype == args.qkv.dtype && args.values.dtype == args.qkv.dtype,
          "attention_cached: keys and values are (B, C, G·D) of qkv's type");
  require(args.start >= 0 && args.start + shape.positions <= args.keys.shape[1],
          "attention_cached: the cache's context is full");
  if (tokens == 0) return;
  if constexpr (kBuiltWithCuda)
    if (device.is_cuda()) return cuda::attention_cached(device, args);
  attention_cached_vector(device, args);
}

}  // namespace filigree
