// The forward pass in bf16 on AMX tiles: products as in attention_vector.cpp, probabilities rounded to bf16 before they
// meet the values. A 64 x 128 tile of scores costs about 2000 cycles in the tile unit and twice that in the
// exponential, so the row-wise part is what was made short: no clamping, no separate scaling, one pass for the maximum
// and one for the rest.
#include <limits>

#include "core/parallel.h"
#include "kernels/amx_tiles.h"
#include "kernels/attention/attention_paths.h"

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,amx-tile,amx-bf16")
namespace filigree {
namespace {

using namespace amx;

constexpr std::int64_t kQueryTile = 64;
constexpr std::int64_t kKeyTile = 128;
// A row's reference for its exponentials follows its maximum only when that has grown by 2^8: a probability of up to
// 256 is no less exact, and rescaling the output becomes rare.
constexpr float kSlack = 8.0f;

constexpr std::int64_t round_up(std::int64_t value, std::int64_t step) {
  return (value + step - 1) / step * step;
}

// Scratch of one thread, in bytes from its start; every part is a multiple of 64 bytes.
struct Layout {
  std::int64_t keys, values, query, p, scores, out, total;

  Layout(const AttentionShape& shape) {
    const std::int64_t operand = round_up(shape.positions, kKeyTile) * shape.size * 2;
    keys = 0;
    values = keys + operand;
    query = values + operand;
    p = query + kQueryTile * shape.size * 2;
    scores = p + kQueryTile * kKeyTile * 2;
    out = scores + kQueryTile * kKeyTile * 4;
    total = out + kQueryTile * shape.size * 4;
  }
};

struct RowState {
  float top = -std::numeric_limits<float>::infinity();  // times the score factor
  float sum = 0.0f;
};

// p (columns) = 2^(factor · scores - top) for the first `valid` columns, 0 for the others; columns is a multiple of 32.
// `out` (size) is rescaled when the reference moves.
template <bool masked>
inline void softmax_row(bf16* p, const float* scores, std::int64_t columns, std::int64_t valid, float factor,
                        RowState& state, float* out, std::int64_t size) {
  const std::int64_t vectors = columns / 16;
  const auto lanes = [valid](std::int64_t v) { return masked ? valid_lanes(valid, v) : __mmask16{0xffff}; };
  __m512 largest = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
  for (std::int64_t v = 0; v < vectors; ++v)
    largest = _mm512_mask_max_ps(largest, lanes(v), largest, _mm512_loadu_ps(scores + 16 * v));
  const float new_top = _mm512_reduce_max_ps(largest) * factor;
  if (new_top > state.top + kSlack) {
    if (state.sum > 0.0f) {
      const __m512 shrink = amx::exponential2(_mm512_set1_ps(state.top - new_top));
      state.sum *= _mm512_cvtss_f32(shrink);
      for (std::int64_t i = 0; i < size; i += 16)
        _mm512_storeu_ps(out + i, _mm512_mul_ps(_mm512_loadu_ps(out + i), shrink));
    }
    state.top = new_top;
  }
  const __m512 scale = _mm512_set1_ps(factor), top = _mm512_set1_ps(state.top);
  __m512 sum0 = _mm512_setzero_ps(), sum1 = _mm512_setzero_ps();
  for (std::int64_t v = 0; v < vectors; v += 2) {
    const __m512 x0 = _mm512_fmsub_ps(_mm512_loadu_ps(scores + 16 * v), scale, top);
    const __m512 x1 = _mm512_fmsub_ps(_mm512_loadu_ps(scores + 16 * v + 16), scale, top);
    const __m512 p0 = _mm512_maskz_mov_ps(lanes(v), amx::exponential2(x0));
    const __m512 p1 = _mm512_maskz_mov_ps(lanes(v + 1), amx::exponential2(x1));
    sum0 = _mm512_add_ps(sum0, p0);
    sum1 = _mm512_add_ps(sum1, p1);
    const __m512bh rounded = _mm512_cvtne2ps_pbh(p1, p0);
    std::memcpy(static_cast<void*>(p + 16 * v), &rounded, sizeof(rounded));
  }
  state.sum += _mm512_reduce_add_ps(_mm512_add_ps(sum0, sum1));
}

void forward_head(const AttentionForwardArgs& args, const AttentionShape& shape, std::int64_t b, std::int64_t h,
                  std::byte* scratch) {
  const Layout at(shape);
  auto* keys = reinterpret_cast<std::uint32_t*>(scratch + at.keys);  // (S / kKeyTile, D / 2, kKeyTile) pairs along D
  auto* values = reinterpret_cast<std::uint32_t*>(scratch + at.values);  // (S / 2, D) pairs along S
  auto* query = reinterpret_cast<bf16*>(scratch + at.query);             // (kQueryTile, D)
  auto* p = reinterpret_cast<bf16*>(scratch + at.p);                     // (kQueryTile, kKeyTile)
  auto* scores = reinterpret_cast<float*>(scratch + at.scores);          // (kQueryTile, kKeyTile)
  auto* out = reinterpret_cast<float*>(scratch + at.out);                // (kQueryTile, D)
  const std::int64_t positions = shape.positions, size = shape.size, stride = shape.row();
  const bf16* rows = args.qkv.as<bf16>() + b * positions * stride;
  const bf16* key_rows = rows + shape.key(h / shape.group());
  const float factor = shape.score_factor();
  for (std::int64_t key = 0; key < positions; key += kKeyTile)
    pair_columns(keys + key * size / 2, kKeyTile, {kKeyTile, size}, key_rows + key * stride, stride,
                 {positions - key, size});
  pair_rows(values, size, {round_up(positions, kKeyTile), size}, rows + shape.value(h / shape.group()), stride,
            {positions, size});

  for (std::int64_t first = 0; first < positions; first += kQueryTile) {
    const std::int64_t count = std::min(kQueryTile, positions - first);
    copy_rows(query, size, {kQueryTile, size}, rows + first * stride + shape.query(h), stride, {count, size});
    std::fill(out, out + kQueryTile * size, 0.0f);
    RowState states[kQueryTile];
    for (std::int64_t key = 0; key < first + count; key += kKeyTile)
      for (std::int64_t block = 0; block < count; block += kBlock) {
        // The block's last row sees keys up to its own position.
        const std::int64_t columns = std::min(kKeyTile, first + block + kBlock - key);
        float* block_scores = scores + block * kKeyTile;
        bf16* block_p = p + block * kKeyTile;
        product<false>(block_scores, kKeyTile, kBlock, columns, query + block * size, size, keys + key * size / 2,
                       kKeyTile, size);
        for (std::int64_t row = 0; row < kBlock; ++row) {
          const std::int64_t valid = first + block + row + 1 - key;
          const auto softmax = valid >= columns ? softmax_row<false> : softmax_row<true>;
          softmax(block_p + row * kKeyTile, block_scores + row * kKeyTile, columns, valid, factor, states[block + row],
                  out + (block + row) * size, size);
        }
        product<true>(out + block * size, size, kBlock, size, block_p, kKeyTile, values + key / 2 * size, size,
                      columns);
      }
    for (std::int64_t row = 0; row < count; ++row) {
      const std::int64_t position = first + row;
      bf16* to = args.out.as<bf16>() + (b * positions + position) * shape.out_row() + h * size;
      store_row(to, out + row * size, size, 1.0f / states[row].sum);
      if (!args.logsumexp.empty())
        args.logsumexp.as<float>()[(b * shape.heads + h) * positions + position] =
            (states[row].top + std::log2(states[row].sum)) * std::numbers::ln2_v<float>;
    }
  }
}

}  // namespace

void attention_forward_amx(Device& device, const AttentionForwardArgs& args) {
  const AttentionShape shape = attention_shape(args.qkv, args.heads, args.kv_heads);
  const std::int64_t units = shape.sequences * shape.heads, bytes = Layout(shape).total;
  const std::int64_t slices = std::min<std::int64_t>(omp_get_max_threads(), units);
  auto* scratch = static_cast<std::byte*>(device.scratch(Scratch::kernel, static_cast<std::size_t>(slices * bytes)));
  parallel_for(units, 1, [&](std::int64_t begin, std::int64_t end) {
    const TileSession session;
    for (std::int64_t unit = begin; unit < end; ++unit)
      forward_head(args, shape, unit / shape.heads, unit % shape.heads, scratch + omp_get_thread_num() * bytes);
  });
}

}  // namespace filigree
HWY_POP_ATTRIBUTES
