// The backward pass in bf16 on AMX tiles. P and dS are rounded to bf16 where they enter a product; sums are fp32.
//
// A left operand is read row by row and a right one in pairs of rows, so dV and dK are computed transposed: then P and
// dS are right operands, and the pairs of two neighbouring rows come out of the registers that hold them, without a
// transposition:
//   S = Q Kᵀ     dP = dO Vᵀ     dVᵀ += dOᵀ P     dKᵀ += Qᵀ dS     dQ += dS K
#include "core/parallel.h"
#include "kernels/amx_tiles.h"
#include "kernels/attention/attention_paths.h"

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,amx-tile,amx-bf16")
namespace filigree {
namespace {

using namespace amx;

constexpr std::int64_t kTile = 64;  // queries and keys of a tile: its four matrices take 56 KB

constexpr std::int64_t round_up(std::int64_t value, std::int64_t step) {
  return (value + step - 1) / step * step;
}

// One thread's operands; N is S rounded up to whole tiles, and "tiled" means one contiguous (D, kTile) for each tile.
struct Operands {
  std::uint32_t* keys;      // (N / 2, D) pairs along S
  std::uint32_t* keys_t;    // tiled (D / 2, kTile) pairs along D
  std::uint32_t* values_t;  // tiled (D / 2, kTile) pairs along D
  float* dkeys_t;           // tiled (D, kTile)
  float* dvalues_t;         // tiled (D, kTile)
  bf16* query;              // (N, D)
  bf16* query_t;            // tiled (D, kTile)
  bf16* dout;               // (N, D)
  bf16* dout_t;             // tiled (D, kTile)
  float* dquery;            // (N, D)
  float* delta;             // (N): sum over a row of dout · out
  float* logsumexp;         // (N), base 2
  float* scores;            // (kTile, kTile)
  float* dp;                // (kTile, kTile)
  std::uint32_t* p_pairs;   // (kTile / 2, kTile) pairs along S
  std::uint32_t* ds_pairs;  // (kTile / 2, kTile) pairs along S
  bf16* ds;                 // (kTile, kTile)
  std::int64_t bytes;       // all of them

  Operands(const AttentionShape& shape, std::byte* scratch) {
    const std::int64_t rows = round_up(shape.positions, kTile), operand = rows * shape.size, tile = kTile * kTile;
    std::int64_t offset = 0;
    const auto place = [&](auto*& pointer, std::int64_t size) {
      pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(scratch + offset);
      offset += round_up(size, 64);
    };
    place(keys, 2 * operand);
    place(keys_t, 2 * operand);
    place(values_t, 2 * operand);
    place(dkeys_t, 4 * operand);
    place(dvalues_t, 4 * operand);
    place(query, 2 * operand);
    place(query_t, 2 * operand);
    place(dout, 2 * operand);
    place(dout_t, 2 * operand);
    place(dquery, 4 * operand);
    place(delta, 4 * rows);
    place(logsumexp, 4 * rows);
    place(scores, 4 * tile);
    place(dp, 4 * tile);
    place(p_pairs, 2 * tile);
    place(ds_pairs, 2 * tile);
    place(ds, 2 * tile);
    bytes = offset;
  }
};

// P and dS = P (dP - delta) of rows `row` and row + 1 of a tile, from S and dP. The first valid0 and valid1 columns
// count, the others become 0.
template <bool masked>
inline void gradient_rows(const Operands& tile, std::int64_t row, std::int64_t query, std::int64_t valid0,
                          std::int64_t valid1, float factor) {
  // Rounding two vectors to bf16 yields one after the other; this order pairs them: 0, 16, 1, 17, ...
  alignas(64) static constexpr std::uint16_t kPairOrder[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                               21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                               11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  const __m512i order = _mm512_load_si512(kPairOrder);
  const __m512 scale = _mm512_set1_ps(factor);
  const __m512 top0 = _mm512_set1_ps(tile.logsumexp[query]), top1 = _mm512_set1_ps(tile.logsumexp[query + 1]);
  const __m512 delta0 = _mm512_set1_ps(tile.delta[query]), delta1 = _mm512_set1_ps(tile.delta[query + 1]);
  for (std::int64_t v = 0; v < kTile / 16; ++v) {
    const std::int64_t at = row * kTile + 16 * v;
    __m512 p0 = amx::exponential2(_mm512_fmsub_ps(_mm512_loadu_ps(tile.scores + at), scale, top0));
    __m512 p1 = amx::exponential2(_mm512_fmsub_ps(_mm512_loadu_ps(tile.scores + at + kTile), scale, top1));
    if constexpr (masked) {
      p0 = _mm512_maskz_mov_ps(valid_lanes(valid0, v), p0);
      p1 = _mm512_maskz_mov_ps(valid_lanes(valid1, v), p1);
    }
    const __m512 ds0 = _mm512_mul_ps(p0, _mm512_sub_ps(_mm512_loadu_ps(tile.dp + at), delta0));
    const __m512 ds1 = _mm512_mul_ps(p1, _mm512_sub_ps(_mm512_loadu_ps(tile.dp + at + kTile), delta1));
    const auto p_rows = std::bit_cast<__m512i>(_mm512_cvtne2ps_pbh(p1, p0));
    const auto ds_rows = std::bit_cast<__m512i>(_mm512_cvtne2ps_pbh(ds1, ds0));
    const std::int64_t pair = row / 2 * kTile + 16 * v;
    _mm512_storeu_si512(tile.p_pairs + pair, _mm512_permutexvar_epi16(order, p_rows));
    _mm512_storeu_si512(tile.ds_pairs + pair, _mm512_permutexvar_epi16(order, ds_rows));
    const __m256i ds_row0 = _mm512_castsi512_si256(ds_rows), ds_row1 = _mm512_extracti64x4_epi64(ds_rows, 1);
    std::memcpy(static_cast<void*>(tile.ds + at), &ds_row0, sizeof(ds_row0));
    std::memcpy(static_cast<void*>(tile.ds + at + kTile), &ds_row1, sizeof(ds_row1));
  }
}

// to (S, D) of stride `stride` = transpose of tiled from (D, kTile), times factor.
void store_transposed(bf16* to, std::int64_t stride, const float* from, const AttentionShape& shape, float factor) {
  for (std::int64_t first = 0; first < shape.positions; first += kTile, from += kTile * shape.size)
    for (std::int64_t column = 0; column < shape.size; column += 16)
      for (std::int64_t row = 0; row < std::min(kTile, shape.positions - first); row += 16) {
        __m512i in[16], out[16];
        for (std::int64_t i = 0; i < 16; ++i) in[i] = _mm512_loadu_si512(from + (column + i) * kTile + row);
        transpose_words_16(out, in);
        alignas(64) float values[16];
        for (std::int64_t i = 0; i < std::min<std::int64_t>(16, shape.positions - first - row); ++i) {
          _mm512_store_si512(values, out[i]);
          store_row(to + (first + row + i) * stride + column, values, 16, factor);
        }
      }
}

// Reads one head's queries, output gradients and statistics.
void pack_head(const Operands& at, const AttentionBackwardArgs& args, const AttentionShape& shape, std::int64_t b,
               std::int64_t h) {
  const std::int64_t positions = shape.positions, size = shape.size, rows = round_up(positions, kTile);
  const std::int64_t out_at = b * positions * shape.out_row() + h * size;
  const bf16* query = args.qkv.as<bf16>() + b * positions * shape.row() + shape.query(h);
  const bf16* dout = args.dout.as<bf16>() + out_at;
  const bf16* out = args.out.as<bf16>() + out_at;
  const float* logsumexp = args.logsumexp.as<float>() + (b * shape.heads + h) * positions;
  copy_rows(at.query, size, {rows, size}, query, shape.row(), {positions, size});
  copy_rows(at.dout, size, {rows, size}, dout, shape.out_row(), {positions, size});
  // Pairs along S, transposed, are the transposed rows.
  std::uint32_t* pairs = at.p_pairs;  // (kTile / 2, size) at a time: free until the first tile
  for (std::int64_t first = 0; first < rows; first += kTile)
    for (std::int64_t column = 0; column < size; column += 32) {
      const std::int64_t tiled = first * size + column * kTile;
      pair_rows(pairs, 32, {kTile, 32}, at.query + first * size + column, size, {kTile, 32});
      transpose_words(words(at.query_t + tiled), kTile / 2, pairs, 32, kTile / 2, 32);
      pair_rows(pairs, 32, {kTile, 32}, at.dout + first * size + column, size, {kTile, 32});
      transpose_words(words(at.dout_t + tiled), kTile / 2, pairs, 32, kTile / 2, 32);
    }
  for (std::int64_t i = 0; i < rows; ++i) {
    __m512 sum = _mm512_setzero_ps();
    for (std::int64_t d = 0; i < positions && d < size; d += 16) {
      const auto widen = [&](const bf16* from) {
        const void* source = from + i * shape.out_row() + d;
        const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(source)));
        return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
      };
      sum = _mm512_fmadd_ps(widen(dout), widen(out), sum);
    }
    at.delta[i] = _mm512_reduce_add_ps(sum);
    at.logsumexp[i] = i < positions ? logsumexp[i] * std::numbers::log2e_v<float> : 0.0f;
  }
  std::fill(at.dquery, at.dquery + rows * size, 0.0f);
}

void backward_group(const AttentionBackwardArgs& args, const AttentionShape& shape, std::int64_t b, std::int64_t g,
                    std::byte* scratch) {
  const Operands at(shape, scratch);
  const std::int64_t positions = shape.positions, size = shape.size, stride = shape.row();
  const std::int64_t rows = round_up(positions, kTile);
  const bf16* qkv = args.qkv.as<bf16>() + b * positions * stride;
  bf16* dqkv = args.dqkv.as<bf16>() + b * positions * stride;
  const float factor = shape.score_factor();
  const auto inverse_root = static_cast<float>(1.0 / std::sqrt(static_cast<double>(size)));
  pair_rows(at.keys, size, {rows, size}, qkv + shape.key(g), stride, {positions, size});
  for (std::int64_t key = 0; key < rows; key += kTile) {
    const Extent all = {kTile, size}, valid = {positions - key, size};
    pair_columns(at.keys_t + key * size / 2, kTile, all, qkv + shape.key(g) + key * stride, stride, valid);
    pair_columns(at.values_t + key * size / 2, kTile, all, qkv + shape.value(g) + key * stride, stride, valid);
  }
  std::fill(at.dkeys_t, at.dkeys_t + rows * size, 0.0f);
  std::fill(at.dvalues_t, at.dvalues_t + rows * size, 0.0f);

  for (std::int64_t h = g * shape.group(); h < (g + 1) * shape.group(); ++h) {
    pack_head(at, args, shape, b, h);
    for (std::int64_t key = 0; key < rows; key += kTile) {
      for (std::int64_t first = key; first < rows; first += kTile) {
        product<false>(at.scores, kTile, kTile, kTile, at.query + first * size, size, at.keys_t + key * size / 2, kTile,
                       size);
        product<false>(at.dp, kTile, kTile, kTile, at.dout + first * size, size, at.values_t + key * size / 2, kTile,
                       size);
        for (std::int64_t row = 0; row < kTile; row += 2) {
          if (first == key || first + kTile > positions) {
            // Rows past the end have no probabilities; their scores are 0 but their statistics mean nothing.
            const auto valid = [&](std::int64_t i) { return first + i < positions ? first + i + 1 - key : 0; };
            gradient_rows<true>(at, row, first + row, valid(row), valid(row + 1), factor);
          } else {
            gradient_rows<false>(at, row, first + row, kTile, kTile, factor);
          }
        }
        product<true>(at.dvalues_t + key * size, kTile, size, kTile, at.dout_t + first * size, kTile, at.p_pairs, kTile,
                      kTile);
        product<true>(at.dkeys_t + key * size, kTile, size, kTile, at.query_t + first * size, kTile, at.ds_pairs, kTile,
                      kTile);
        product<true>(at.dquery + first * size, size, kTile, size, at.ds, kTile, at.keys + key / 2 * size, size, kTile);
      }
    }
    for (std::int64_t i = 0; i < positions; ++i)
      store_row(dqkv + i * stride + shape.query(h), at.dquery + i * size, size, inverse_root);
  }
  store_transposed(dqkv + shape.key(g), stride, at.dkeys_t, shape, inverse_root);
  store_transposed(dqkv + shape.value(g), stride, at.dvalues_t, shape, 1.0f);
}

}  // namespace

void attention_backward_amx(Device& device, const AttentionBackwardArgs& args) {
  const AttentionShape shape = attention_shape(args.qkv, args.heads, args.kv_heads);
  const std::int64_t units = shape.sequences * shape.kv_heads, bytes = Operands(shape, nullptr).bytes;
  const std::int64_t slices = std::min<std::int64_t>(omp_get_max_threads(), units);
  auto* scratch = static_cast<std::byte*>(device.scratch(Scratch::kernel, static_cast<std::size_t>(slices * bytes)));
  parallel_for(units, 1, [&](std::int64_t begin, std::int64_t end) {
    const TileSession session;
    for (std::int64_t unit = begin; unit < end; ++unit)
      backward_group(args, shape, unit / shape.kv_heads, unit % shape.kv_heads, scratch + omp_get_thread_num() * bytes);
  });
}

}  // namespace filigree
HWY_POP_ATTRIBUTES
