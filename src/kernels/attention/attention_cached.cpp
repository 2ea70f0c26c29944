#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/attention_cached.cpp"
#include <hwy/foreach_target.h>
// After foreach_target, so that it is included once for each instruction set.
#include "core/parallel.h"
#include "kernels/attention/attention_paths.h"
#include "kernels/vector-inl.h"

// Decoding: one query row against the whole cache. Bound by reading keys and values once, so the query heads of a group
// share each row while it is in the first-level cache, and no tile is worth packing.

HWY_BEFORE_NAMESPACE();
namespace filigree::HWY_NAMESPACE {
namespace {

// One new token of one group: scores (H/G, keys) of this thread.
template <typename T>
void attend(const AttentionCachedArgs& args, const AttentionShape& shape, std::int64_t b, std::int64_t position,
            std::int64_t g, float* scores, float* sums) {
  const std::int64_t size = shape.size, group = shape.group(), context = args.keys.shape[1];
  const std::int64_t cache_row = shape.kv_heads * size, count = args.start + position + 1;
  const T* keys = args.keys.as<T>() + b * context * cache_row + g * size;      // rows of stride cache_row
  const T* values = args.values.as<T>() + b * context * cache_row + g * size;  // likewise
  const std::int64_t token = b * shape.positions + position;
  const T* query = args.qkv.as<T>() + token * shape.row() + shape.query(g * group);  // (H/G, D)
  for (std::int64_t key = 0; key < count; ++key)
    for (std::int64_t h = 0; h < group; ++h)
      scores[h * context + key] =
          shape.score_factor() * sum_vectors(size, [&](std::int64_t i, auto part) HWY_ATTR {
            return hn::Mul(load(query + h * size + i, part), load(keys + key * cache_row + i, part));
          });
  std::fill(sums, sums + group * size, 0.0f);  // (H/G, D)
  for (std::int64_t h = 0; h < group; ++h) {
    float* row = scores + h * context;
    const FloatVector top = splat(*std::max_element(row, row + count));
    const float sum = sum_vectors(count, [&](std::int64_t i, auto part) HWY_ATTR {
      const FloatVector p = keep(exponential2(hn::Sub(load(row + i, part), top)), part);
      store(p, row + i, part);
      return p;
    });
    for (std::int64_t key = 0; key < count; ++key) row[key] /= sum;
  }
  for (std::int64_t key = 0; key < count; ++key)
    for (std::int64_t h = 0; h < group; ++h) {
      const FloatVector p = splat(scores[h * context + key]);
      for_vectors(size, [&](std::int64_t i, auto part) HWY_ATTR {
        float* sum = sums + h * size + i;
        store(hn::MulAdd(p, load(values + key * cache_row + i, part), load(sum, part)), sum, part);
      });
    }
  T* out = args.out.as<T>() + token * shape.out_row() + shape.query(g * group);  // (H/G, D)
  for_vectors(group * size, [&](std::int64_t i, auto part) HWY_ATTR { store(load(sums + i, part), out + i, part); });
}

template <typename T>
void append(const AttentionCachedArgs& args, const AttentionShape& shape) {
  const std::int64_t context = args.keys.shape[1], cache_row = shape.kv_heads * shape.size;
  for (std::int64_t b = 0; b < shape.sequences; ++b)
    for (std::int64_t position = 0; position < shape.positions; ++position) {
      const T* row = args.qkv.as<T>() + (b * shape.positions + position) * shape.row();
      const std::int64_t at = (b * context + args.start + position) * cache_row;
      std::copy_n(row + shape.key(0), cache_row, args.keys.as<T>() + at);
      std::copy_n(row + shape.value(0), cache_row, args.values.as<T>() + at);
    }
}

void cached(Device& device, const AttentionCachedArgs& args) {
  const AttentionShape shape = attention_shape(args.qkv, args.heads, args.kv_heads);
  const std::int64_t stride = shape.group() * (args.keys.shape[1] + shape.size);
  const std::int64_t units = shape.sequences * shape.positions * shape.kv_heads;
  const std::int64_t slices = std::min<std::int64_t>(omp_get_max_threads(), units);
  auto* scratch =
      static_cast<float*>(device.scratch(Scratch::kernel, static_cast<std::size_t>(slices * stride) * sizeof(float)));
  with_compute_type(args.qkv.dtype, [&]<typename T>() {
    append<T>(args, shape);
    parallel_for(units, 1, [&](std::int64_t begin, std::int64_t end) {
      float* scores = scratch + omp_get_thread_num() * stride;
      for (std::int64_t unit = begin; unit < end; ++unit) {
        const std::int64_t token = unit / shape.kv_heads;
        attend<T>(args, shape, token / shape.positions, token % shape.positions, unit % shape.kv_heads, scores,
                  scores + shape.group() * args.keys.shape[1]);
      }
    });
  });
}

}  // namespace
}  // namespace filigree::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace filigree {

HWY_EXPORT(cached);

void attention_cached_vector(Device& device, const AttentionCachedArgs& args) {
  HWY_DYNAMIC_DISPATCH(cached)(device, args);
}

}  // namespace filigree
#endif  // HWY_ONCE
