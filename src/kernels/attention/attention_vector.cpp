#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/attention_vector.cpp"
#include <hwy/foreach_target.h>
// After foreach_target, so that it is included once for each instruction set.
#include <limits>

#include "core/parallel.h"
#include "kernels/attention/attention_paths.h"
#include "kernels/attention/tile_matmul-inl.h"

// FlashAttention in fp32. A head's operands are first packed into contiguous fp32 rows (and transposes) of the thread's
// own scratch, W = D rounded up to whole vectors wide, so that the five products of tiles run at the rate of
// tile_matmul whatever the type and the strides. Packing reads S·D elements against S²·D/2 multiplications.
//
// Forward parallelises over (b, h), backward over (b, g), and within one of these the order of operations is fixed:
// results do not depend on the thread count.

HWY_BEFORE_NAMESPACE();
namespace filigree::HWY_NAMESPACE {
namespace {

constexpr std::int64_t kQueryTile = 64;
constexpr std::int64_t kKeyTile = 128;     // forward: more keys a tile, fewer reductions of a row to its maximum
constexpr std::int64_t kKeyTileBack = 64;  // backward: P and dS tiles of 16 KB each

constexpr std::int64_t round_up(std::int64_t value, std::int64_t step) {
  return (value + step - 1) / step * step;
}

// to (count, width) = factor · from (count, size), the rest of each row 0.
template <typename T>
void pack_rows(float* to, std::int64_t width, const T* from, std::int64_t from_stride, std::int64_t count,
               std::int64_t size, float factor) {
  const FloatVector scale = splat(factor);
  for (std::int64_t row = 0; row < count; ++row)
    for_vectors(size, [&](std::int64_t i, auto part) HWY_ATTR {
      store(hn::Mul(load(from + row * from_stride + i, part), scale), to + row * width + i);  // pads with 0
    });
}

// Transposes tiles of `tile` rows: to (count / tile, size, tile), from (count, size) of stride from_stride. Rows past
// `count` in the last tile become 0.
template <typename T>
void pack_transposed(float* to, std::int64_t tile, const T* from, std::int64_t from_stride, std::int64_t count,
                     std::int64_t size) {
  for (std::int64_t first = 0; first < count; first += tile, to += size * tile) {
    const std::int64_t rows = std::min(tile, count - first);
    if (rows < tile) std::fill(to, to + size * tile, 0.0f);
    // Blocks of 16 columns: 16 cache lines of `to` are written while one of `from` is read.
    for (std::int64_t block = 0; block < size; block += 16)
      for (std::int64_t row = 0; row < rows; ++row) {
        const T* source = from + (first + row) * from_stride;
        for (std::int64_t column = block; column < std::min(size, block + 16); ++column)
          to[column * tile + row] = static_cast<float>(source[column]);
      }
  }
}

// One row of scores becomes probabilities; the running maximum, sum and output row follow.
struct RowState {
  float top = -std::numeric_limits<float>::infinity();
  float sum = 0.0f;
};

// scores (columns): the first `valid` count, the others become 0.
HWY_INLINE void softmax_row(float* scores, std::int64_t valid, std::int64_t columns, RowState& state, float* out,
                            std::int64_t width) {
  const FloatTag f;
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  FloatVector top = splat(state.top);
  for_vectors(valid, [&](std::int64_t i, auto part) HWY_ATTR { top = hn::Max(top, load(scores + i, part, kLowest)); });
  top = hn::MaxOfLanes(f, top);
  const float new_top = hn::GetLane(top);
  if (new_top > state.top) {
    const FloatVector shrink = exponential2(hn::Sub(splat(state.top), top));
    state.sum *= hn::GetLane(shrink);
    for (std::int64_t i = 0; i < width; i += kLanes) store(hn::Mul(load(out + i), shrink), out + i);
    state.top = new_top;
  }
  FloatVector sum = splat(0.0f);
  for_vectors(valid, [&](std::int64_t i, auto part) HWY_ATTR {
    const FloatVector p = keep(exponential2(hn::Sub(load(scores + i, part), top)), part);
    sum = hn::Add(sum, p);
    store(p, scores + i);
  });
  for (std::int64_t i = round_up(valid, kLanes); i < columns; i += kLanes) store(splat(0.0f), scores + i);
  state.sum += hn::GetLane(hn::SumOfLanes(f, sum));
}

// Scratch of one thread, in floats.
struct ForwardScratch {
  std::int64_t padded, width;
  ForwardScratch(const AttentionShape& shape)
      : padded(round_up(shape.positions, kKeyTile)), width(round_up(shape.size, kLanes)) {}
  std::int64_t keys() const { return padded * width; }
  std::int64_t values() const { return padded * width; }
  std::int64_t query() const { return kQueryTile * width; }
  std::int64_t scores() const { return kQueryTile * kKeyTile; }
  std::int64_t total() const { return keys() + values() + 2 * query() + scores(); }
};

template <typename T>
void forward_head(const AttentionForwardArgs& args, const AttentionShape& shape, std::int64_t b, std::int64_t h,
                  float* scratch) {
  const ForwardScratch sizes(shape);
  const std::int64_t width = sizes.width, positions = shape.positions, size = shape.size;
  float* keys = scratch;                   // (S / kKeyTile, D, kKeyTile)
  float* values = keys + sizes.keys();     // (S, W)
  float* query = values + sizes.values();  // (kQueryTile, W)
  float* out = query + sizes.query();      // (kQueryTile, W)
  float* scores = out + sizes.query();     // (kQueryTile, kKeyTile)
  const T* rows = args.qkv.as<T>() + b * positions * shape.row();
  pack_transposed(keys, kKeyTile, rows + shape.key(h / shape.group()), shape.row(), positions, size);
  pack_rows(values, width, rows + shape.value(h / shape.group()), shape.row(), positions, size, 1.0f);

  for (std::int64_t first = 0; first < positions; first += kQueryTile) {
    const std::int64_t count = std::min(kQueryTile, positions - first);
    const std::int64_t end = first + count;  // keys that the tile sees
    pack_rows(query, width, rows + first * shape.row() + shape.query(h), shape.row(), count, size,
              shape.score_factor());
    std::fill(out, out + count * width, 0.0f);
    RowState states[kQueryTile];
    for (std::int64_t key = 0; key < end; key += kKeyTile) {
      const std::int64_t columns = std::min(kKeyTile, round_up(end - key, kTileVectors * kLanes));
      tile_matmul<false>(scores, kKeyTile, count, columns, {query, width, 1}, keys + key * size, kKeyTile, size);
      for (std::int64_t row = 0; row < count; ++row) {
        const std::int64_t valid = std::min(columns, first + row + 1 - key);
        softmax_row(scores + row * kKeyTile, valid, columns, states[row], out + row * width, width);
      }
      tile_matmul<true>(out, width, count, width, {scores, kKeyTile, 1}, values + key * width, width,
                        std::min(columns, end - key));
    }
    for (std::int64_t row = 0; row < count; ++row) {
      const std::int64_t position = first + row;
      const FloatVector inverse = splat(1.0f / states[row].sum);
      T* to = args.out.as<T>() + (b * positions + position) * shape.out_row() + h * size;
      for_vectors(size, [&](std::int64_t i, auto part)
                            HWY_ATTR { store(hn::Mul(load(out + row * width + i), inverse), to + i, part); });
      if (!args.logsumexp.empty())
        args.logsumexp.as<float>()[(b * shape.heads + h) * positions + position] =
            (states[row].top + std::log2(states[row].sum)) * std::numbers::ln2_v<float>;
    }
  }
}

struct BackwardScratch {
  std::int64_t padded, width;
  BackwardScratch(const AttentionShape& shape)
      : padded(round_up(shape.positions, kKeyTileBack)), width(round_up(shape.size, kLanes)) {}
  std::int64_t rows() const { return padded * width; }  // one packed operand
  std::int64_t tile() const { return kQueryTile * kKeyTileBack; }
  std::int64_t total() const { return 8 * rows() + 2 * tile() + 2 * padded; }
};

// p and ds (count, kKeyTileBack) hold the scores and dP on entry, P and dS on return; entries past the diagonal are 0.
HWY_INLINE void score_gradient(float* p, float* ds, std::int64_t count, std::int64_t columns, std::int64_t ahead,
                               const float* logsumexp, const float* delta) {
  for (std::int64_t row = 0; row < count; ++row) {
    const std::int64_t valid = std::min(columns, ahead + row + 1);
    const FloatVector top = splat(logsumexp[row]), mean = splat(delta[row]);
    float* p_row = p + row * kKeyTileBack;
    float* ds_row = ds + row * kKeyTileBack;
    for_vectors(valid, [&](std::int64_t i, auto part) HWY_ATTR {
      const FloatVector probability = keep(exponential2(hn::Sub(load(p_row + i), top)), part);
      store(probability, p_row + i);
      store(hn::Mul(probability, hn::Sub(load(ds_row + i), mean)), ds_row + i);
    });
    for (std::int64_t i = round_up(valid, kLanes); i < columns; i += kLanes) {
      store(splat(0.0f), p_row + i);
      store(splat(0.0f), ds_row + i);
    }
  }
}

template <typename T>
void unpack_rows(T* to, std::int64_t to_stride, const float* from, std::int64_t width, std::int64_t count,
                 std::int64_t size, float factor) {
  const FloatVector scale = splat(factor);
  for (std::int64_t row = 0; row < count; ++row)
    for_vectors(size, [&](std::int64_t i, auto part) HWY_ATTR {
      store(hn::Mul(load(from + row * width + i), scale), to + row * to_stride + i, part);
    });
}

template <typename T>
void backward_group(const AttentionBackwardArgs& args, const AttentionShape& shape, std::int64_t b, std::int64_t g,
                    float* scratch) {
  const BackwardScratch sizes(shape);
  const std::int64_t width = sizes.width, positions = shape.positions, size = shape.size, tile = kKeyTileBack;
  float* keys = scratch;                                      // (S, W)
  float* keys_transposed = keys + sizes.rows();               // (S / tile, D, tile)
  float* values_transposed = keys_transposed + sizes.rows();  // (S / tile, D, tile)
  float* dkeys = values_transposed + sizes.rows();            // (S, W)
  float* dvalues = dkeys + sizes.rows();                      // (S, W)
  float* query = dvalues + sizes.rows();                      // (S, W), times the score factor
  float* dquery = query + sizes.rows();                       // (S, W)
  float* dout = dquery + sizes.rows();                        // (S, W)
  float* p = dout + sizes.rows();                             // (kQueryTile, tile)
  float* ds = p + sizes.tile();                               // (kQueryTile, tile)
  float* delta = ds + sizes.tile();                           // (S): sum of dout · out of a row
  float* logsumexp = delta + sizes.padded;                    // (S), base 2
  const T* rows = args.qkv.as<T>() + b * positions * shape.row();
  T* drows = args.dqkv.as<T>() + b * positions * shape.row();
  pack_rows(keys, width, rows + shape.key(g), shape.row(), positions, size, 1.0f);
  pack_transposed(keys_transposed, tile, rows + shape.key(g), shape.row(), positions, size);
  pack_transposed(values_transposed, tile, rows + shape.value(g), shape.row(), positions, size);
  std::fill(dkeys, dkeys + 2 * sizes.rows(), 0.0f);

  for (std::int64_t h = g * shape.group(); h < (g + 1) * shape.group(); ++h) {
    const std::int64_t out_at = b * positions * shape.out_row() + h * size;
    pack_rows(query, width, rows + shape.query(h), shape.row(), positions, size, shape.score_factor());
    pack_rows(dout, width, args.dout.as<T>() + out_at, shape.out_row(), positions, size, 1.0f);
    std::fill(dquery, dquery + positions * width, 0.0f);
    for (std::int64_t i = 0; i < positions; ++i) {
      const T* out_row = args.out.as<T>() + out_at + i * shape.out_row();
      delta[i] = sum_vectors(size, [&](std::int64_t d, auto part) HWY_ATTR {
        return hn::Mul(load(dout + i * width + d), load(out_row + d, part));
      });
      logsumexp[i] = args.logsumexp.as<float>()[(b * shape.heads + h) * positions + i] * std::numbers::log2e_v<float>;
    }
    for (std::int64_t key = 0; key < positions; key += tile) {
      const std::int64_t columns = std::min(tile, round_up(positions - key, kLanes));
      const std::int64_t key_count = std::min(tile, positions - key);
      for (std::int64_t first = key / kQueryTile * kQueryTile; first < positions; first += kQueryTile) {
        const std::int64_t count = std::min(kQueryTile, positions - first);
        const float* q = query + first * width;
        const float* gradient = dout + first * width;
        tile_matmul<false>(p, tile, count, columns, {q, width, 1}, keys_transposed + key * size, tile, size);
        tile_matmul<false>(ds, tile, count, columns, {gradient, width, 1}, values_transposed + key * size, tile, size);
        score_gradient(p, ds, count, columns, first - key, logsumexp + first, delta + first);
        tile_matmul<true>(dvalues + key * width, width, key_count, width, {p, 1, tile}, gradient, width, count);
        tile_matmul<true>(dkeys + key * width, width, key_count, width, {ds, 1, tile}, q, width, count);
        tile_matmul<true>(dquery + first * width, width, count, width, {ds, tile, 1}, keys + key * width, width,
                          key_count);
      }
    }
    const auto inverse_root = static_cast<float>(1.0 / std::sqrt(static_cast<double>(size)));
    unpack_rows(drows + shape.query(h), shape.row(), dquery, width, positions, size, inverse_root);
  }
  // The packed queries carry log2(e) / sqrt(D); the gradient wants 1 / sqrt(D).
  unpack_rows(drows + shape.key(g), shape.row(), dkeys, width, positions, size, std::numbers::ln2_v<float>);
  unpack_rows(drows + shape.value(g), shape.row(), dvalues, width, positions, size, 1.0f);
}

// body(b, head, scratch of this thread) for each sequence and head.
template <typename Body>
void for_heads(Device& device, std::int64_t sequences, std::int64_t heads, std::int64_t scratch_size,
               const Body& body) {
  const std::int64_t slices = std::min<std::int64_t>(omp_get_max_threads(), sequences * heads);
  const std::int64_t stride = round_up(scratch_size, 16);
  auto* scratch =
      static_cast<float*>(device.scratch(Scratch::kernel, static_cast<std::size_t>(slices * stride) * sizeof(float)));
  parallel_for(sequences * heads, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t unit = begin; unit < end; ++unit)
      body(unit / heads, unit % heads, scratch + omp_get_thread_num() * stride);
  });
}

void forward(Device& device, const AttentionForwardArgs& args) {
  const AttentionShape shape = attention_shape(args.qkv, args.heads, args.kv_heads);
  with_compute_type(args.qkv.dtype, [&]<typename T>() {
    for_heads(device, shape.sequences, shape.heads, ForwardScratch(shape).total(),
              [&](std::int64_t b, std::int64_t h, float* scratch) { forward_head<T>(args, shape, b, h, scratch); });
  });
}

void backward(Device& device, const AttentionBackwardArgs& args) {
  const AttentionShape shape = attention_shape(args.qkv, args.heads, args.kv_heads);
  with_compute_type(args.qkv.dtype, [&]<typename T>() {
    for_heads(device, shape.sequences, shape.kv_heads, BackwardScratch(shape).total(),
              [&](std::int64_t b, std::int64_t g, float* scratch) { backward_group<T>(args, shape, b, g, scratch); });
  });
}

}  // namespace
}  // namespace filigree::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace filigree {

HWY_EXPORT(forward);
HWY_EXPORT(backward);

void attention_forward_vector(Device& device, const AttentionForwardArgs& args) {
  HWY_DYNAMIC_DISPATCH(forward)(device, args);
}

void attention_backward_vector(Device& device, const AttentionBackwardArgs& args) {
  HWY_DYNAMIC_DISPATCH(backward)(device, args);
}

}  // namespace filigree
#endif  // HWY_ONCE
