#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/embedding/embedding_cpu.cpp"
#include <hwy/foreach_target.h>
// After foreach_target, so that it is included once for each instruction set.
#include "core/parallel.h"
#include "kernels/embedding/embedding.h"
#include "kernels/vector-inl.h"

// Backward needs no sorting of tokens and no atomics: each thread owns channels, not table rows, and walks all tokens
// in order. That balances whatever the tokens are, and reads and writes each byte once.

HWY_BEFORE_NAMESPACE();
namespace filigree::HWY_NAMESPACE {
namespace {

template <typename T>
void forward_rows(const EmbeddingForwardArgs& args) {
  const std::int64_t channels = args.table.shape[1];    // C
  const std::int64_t positions = args.tokens.shape[1];  // S
  const auto* tokens = args.tokens.as<std::int32_t>();
  parallel_for(args.tokens.count(), 8, [&](std::int64_t begin, std::int64_t end) HWY_ATTR {
    for (std::int64_t t = begin; t < end; ++t) {
      const T* row = args.table.as<T>() + tokens[t] * channels;
      T* y = args.y.as<T>() + t * channels;
      if (args.positions.empty()) {
        std::copy(row, row + channels, y);
        continue;
      }
      const T* position = args.positions.as<T>() + (args.start + t % positions) * channels;
      for_vectors(channels, [&](std::int64_t i, auto part) HWY_ATTR {
        store(hn::Add(load(row + i, part), load(position + i, part)), y + i, part);
      });
    }
  });
}

template <typename T>
void backward_channels(const EmbeddingBackwardArgs& args) {
  const std::int64_t channels = args.dtable.shape[1];
  const std::int64_t positions = args.tokens.shape[1];
  const auto* tokens = args.tokens.as<std::int32_t>();
  const T* dy = args.dy.as<T>();
  float* dtable = args.dtable.as<float>();
  float* dpositions = args.dpositions.empty() ? nullptr : args.dpositions.as<float>();
  // 64 channels are four cache lines of a table row: enough for the prefetcher, and 12 threads' worth at C = 768.
  parallel_for(channels, 64, [&](std::int64_t begin, std::int64_t end) HWY_ATTR {
    for (std::int64_t t = 0; t < args.tokens.count(); ++t) {
      const T* gradient = dy + t * channels + begin;
      float* row = dtable + tokens[t] * channels + begin;
      float* position = dpositions ? dpositions + t % positions * channels + begin : nullptr;
      for_vectors(end - begin, [&](std::int64_t i, auto part) HWY_ATTR {
        const FloatVector add = load(gradient + i, part);
        store(hn::Add(load(row + i, part), add), row + i, part);
        if (position) store(hn::Add(load(position + i, part), add), position + i, part);
      });
    }
  });
}

void forward(const EmbeddingForwardArgs& args) {
  with_compute_type(args.table.dtype, [&]<typename T>() { forward_rows<T>(args); });
}

void backward(const EmbeddingBackwardArgs& args) {
  with_compute_type(args.dy.dtype, [&]<typename T>() { backward_channels<T>(args); });
}

}  // namespace
}  // namespace filigree::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace filigree {

HWY_EXPORT(forward);
HWY_EXPORT(backward);

void embedding_forward(Device& device, const EmbeddingForwardArgs& args) {
  require(args.table.shape.rank() == 2 && args.tokens.shape.rank() == 2, "embedding: table is (V, C), tokens (B, S)");
  const std::int64_t channels = args.table.shape[1];
  require(args.y.count() == args.tokens.count() * channels && args.y.dtype == args.table.dtype,
          "embedding: y and the table do not fit each other");
  require(args.positions.empty() || (args.positions.shape[1] == channels && args.start >= 0 &&
                                     args.start + args.tokens.shape[1] <= args.positions.shape[0]),
          "embedding: tokens reach past the learned positions");
  if (args.y.count() == 0) return;
  if constexpr (kBuiltWithCuda)
    if (device.is_cuda()) return cuda::embedding_forward(device, args);
  HWY_DYNAMIC_DISPATCH(forward)(args);
}

void embedding_backward(Device& device, const EmbeddingBackwardArgs& args) {
  require(args.dtable.shape.rank() == 2 && args.tokens.shape.rank() == 2, "embedding: dtable is (V, C), tokens (B, S)");
  const std::int64_t channels = args.dtable.shape[1];
  require(args.dy.count() == args.tokens.count() * channels, "embedding: dy and dtable do not fit each other");
  require(args.dpositions.empty() ||
              (args.dpositions.shape[1] == channels && args.tokens.shape[1] <= args.dpositions.shape[0]),
          "embedding: tokens reach past the learned positions");
  if (args.dy.count() == 0) return;
  if constexpr (kBuiltWithCuda)
    if (device.is_cuda()) return cuda::embedding_backward(device, args);
  HWY_DYNAMIC_DISPATCH(backward)(args);
}

}  // namespace filigree
#endif  // HWY_ONCE
