// cuda::attention_*: cuDNN where it takes the call, else our own kernels.
#include "kernels/attention/attention_cuda.h"

namespace filigree::cuda {
namespace {

// From here on a prompt is worth tiles of 64 queries; fewer read the cache once each, as decoding does.
constexpr std::int64_t kFewQueries = 16;
// From here on a whole prompt is worth a plan of cuDNN's: some tenths of a second for each new length, and then a
// fraction of our kernels' time.
constexpr std::int64_t kLongPrompt = 1024;

template <typename Args>
std::string backend(Device& device, const Args& args) {
  const std::string refusal = cudnn_refusal(device, args);
  return refusal.empty() ? cudnn_name(device) : "own kernels (" + refusal + ")";
}

}  // namespace

std::string attention_backend(Device& device, const AttentionForwardArgs& args) {
  return backend(device, args);
}

std::string attention_backend(Device& device, const AttentionBackwardArgs& args) {
  return backend(device, args);
}

void attention_forward(Device& device, const AttentionForwardArgs& args) {
  if (!attention_forward_cudnn(device, args)) attention_forward_own(device, args);
}

void attention_backward(Device& device, const AttentionBackwardArgs& args) {
  if (!attention_backward_cudnn(device, args)) attention_backward_own(device, args);
}

void attention_cached(Device& device, const AttentionCachedArgs& args) {
  if (args.qkv.shape[1] <= kFewQueries) return attention_cached_few(device, args);
  attention_append(device, args);
  // A prompt that begins the sequence attends to itself alone.
  if (args.start == 0 && args.qkv.shape[1] >= kLongPrompt &&
      attention_forward_cudnn(device,
                              {.out = args.out, .qkv = args.qkv, .heads = args.heads, .kv_heads = args.kv_heads}))
    return;
  attention_cached_tiles(device, args);
}

}  // namespace filigree::cuda
