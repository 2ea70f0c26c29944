// The implementations behind cuda::attention_*, and which of them serves. Arguments have been checked by
// attention_cpu.cpp; no extent is 0.
#pragma once

#include <string>

#include "kernels/attention/attention_paths.h"

namespace filigree::cuda {

// cuDNN's flash attention (attention_cudnn.cpp): bf16 on tensor cores, head sizes that are multiples of 8. What it
// refuses goes to our own kernels.
//
// Names who serves a call: "cuDNN 9.19.0", or "own kernels (...)" with cuDNN's reason in the brackets. Builds and keeps
// cuDNN's plan for the shape, as the call itself would.
std::string attention_backend(Device& device, const AttentionForwardArgs& args);
std::string attention_backend(Device& device, const AttentionBackwardArgs& args);

// Our own kernels: fp32 and bf16, fp32 arithmetic, head sizes up to 256, equal bits in every run.
void attention_forward_own(Device& device, const AttentionForwardArgs& args);
void attention_backward_own(Device& device, const AttentionBackwardArgs& args);
// A cached call of many queries in two steps: the new keys and values into the cache, then the queries against it, by
// the tiles of attention_forward_own.
void attention_append(Device& device, const AttentionCachedArgs& args);
void attention_cached_tiles(Device& device, const AttentionCachedArgs& args);
// A cached call of few queries, bound by reading the cache.
void attention_cached_few(Device& device, const AttentionCachedArgs& args);

// cuDNN. `refusal` is empty when it takes the call, else it says why not. The functions below it return false then.
std::string cudnn_name(Device& device);  // e.g. "cuDNN 9.19.0"
std::string cudnn_refusal(Device& device, const AttentionForwardArgs& args);
std::string cudnn_refusal(Device& device, const AttentionBackwardArgs& args);
bool attention_forward_cudnn(Device& device, const AttentionForwardArgs& args);
bool attention_backward_cudnn(Device& device, const AttentionBackwardArgs& args);

}  // namespace filigree::cuda
