// Why not oneDNN: on one Sapphire Rapids core, at GPT-2's shapes and 4096 tokens, its 2.6 (and 3.2) reach 450 to 800
// GFLOP/s forward and for dX and 380 to 460 for dW; this kernel 750 to 1250 and 700 to 1050. The processor time was
// taken on a busy machine, the same for both.
//
// b is packed once a call, by all threads, into panels of 32 columns and kDepth rows (16 KB, of a first cache of 48).
// Each thread then takes bands of rows of y: for every chunk of kDepth along K it packs its band of a (128 KB at most,
// second cache), one tile register after the other, so that loading is sequential, and multiplies it with every panel.
// Sums wait in fp32 blocks of 32 x 32 between chunks. Each element is summed over K in order, whatever the thread
// count.
#include "kernels/matmul/matmul_amx.h"

#include "core/parallel.h"
#include "kernels/amx_tiles.h"

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,amx-tile,amx-bf16")
namespace filigree {
namespace {

using namespace amx;

constexpr std::int64_t kDepth = 256;  // of a chunk
constexpr std::int64_t kGroup = 24;   // panels whose sums are kept at once: 768 KB, within the second cache
// Rows of y that a thread takes at once, at most. dW runs through all tokens for each band and gains from a larger one.
constexpr std::int64_t kBand = 128, kBandTransposed = 256;
constexpr std::int64_t kBlockCount = kBlock * kBlock;

constexpr std::int64_t round_up(std::int64_t value, std::int64_t step) {
  return (value + step - 1) / step * step;
}

struct Plan {
  std::int64_t rows, columns, depth;         // M, N, K
  std::int64_t panels, chunks, band, bands;  // of b's columns; along K; rows of y a thread takes at once; their number

  explicit Plan(const MatmulArgs& args)
      : rows(args.y.shape[0]), columns(args.y.shape[1]), depth(args.a.shape[args.transpose_a ? 0 : 1]) {
    panels = (columns + kBlock - 1) / kBlock;
    chunks = (depth + kDepth - 1) / kDepth;
    // As many bands as give every thread the same number of them.
    const std::int64_t threads = omp_get_max_threads();
    const std::int64_t most = args.transpose_a ? kBandTransposed : kBand;
    const std::int64_t wanted = round_up((rows + most - 1) / most, threads);
    band = round_up((rows + wanted - 1) / wanted, kBlock);
    bands = (rows + band - 1) / band;
  }
  // Depth of a chunk, in whole tile registers.
  std::int64_t chunk_depth(std::int64_t chunk) const { return round_up(std::min(kDepth, depth - chunk * kDepth), 32); }
  // b packed: (chunks, panels, kDepth / 2, 32) pairs along K.
  std::int64_t panel_pairs() const { return kDepth / 2 * kBlock; }
  std::int64_t packed_bytes() const { return chunks * panels * panel_pairs() * 4; }
  // One thread's: a's band of a chunk (band / 32, 32, chunk depth), and the sums (kGroup, band / 32, 32, 32).
  std::int64_t a_bytes() const { return band * kDepth * 2; }
  std::int64_t sums_bytes() const {
    return (chunks > 1 ? std::min(panels, kGroup) * band / kBlock : 1) * kBlockCount * 4;
  }
  std::int64_t thread_bytes() const { return a_bytes() + sums_bytes(); }
};

// to (depth / 2, 32) pairs along K of columns [column, column + 32) of b, rows of chunk `chunk`.
void pack_b_panel(std::uint32_t* to, const MatmulArgs& args, const Plan& plan, std::int64_t chunk, std::int64_t panel) {
  const std::int64_t first = chunk * kDepth, column = panel * kBlock;
  const std::int64_t valid_depth = std::min(kDepth, plan.depth - first);
  const std::int64_t valid_columns = std::min(kBlock, plan.columns - column);
  const std::int64_t depth = plan.chunk_depth(chunk);
  const bf16* b = args.b.as<bf16>();
  if (args.transpose_b)
    pair_columns(to, kBlock, {kBlock, depth}, b + column * plan.depth + first, plan.depth,
                 {valid_columns, valid_depth});
  else
    pair_rows(to, kBlock, {depth, kBlock}, b + first * plan.columns + column, plan.columns,
              {valid_depth, valid_columns});
}

// to (depth / 32, 32, 32), one contiguous tile step after the other, of rows [row, row + 32) of op(a), chunk `chunk`;
// rows and columns past the end are 0.
void pack_a_panel(bf16* to, const MatmulArgs& args, const Plan& plan, std::int64_t chunk, std::int64_t row) {
  const std::int64_t valid_rows = std::min(kBlock, plan.rows - row), depth = plan.chunk_depth(chunk);
  const bf16* a = args.a.as<bf16>();
  for (std::int64_t step = 0; step < depth; step += 32, to += kBlockCount) {
    const std::int64_t first = chunk * kDepth + step, valid_depth = std::min<std::int64_t>(32, plan.depth - first);
    if (args.transpose_a) {
      // Pairs along K, transposed, are rows along K.
      std::uint32_t pairs[16 * kBlock];
      pair_rows(pairs, kBlock, {32, kBlock}, a + first * plan.rows + row, plan.rows, {valid_depth, valid_rows});
      transpose_words(words(to), 16, pairs, kBlock, 16, kBlock);
    } else {
      copy_rows(to, 32, {kBlock, 32}, a + row * plan.depth + first, plan.depth, {valid_rows, valid_depth});
    }
  }
}

// y (rows, columns) = scale · sums + bias [+ y] for one block of 32 x 32 sums.
template <typename Y>
void store_block(const MatmulArgs& args, const float* sums, std::int64_t row, std::int64_t column,
                 std::int64_t y_stride, std::int64_t rows, std::int64_t columns) {
  const __m512 scale = _mm512_set1_ps(args.scale);
  const float* bias = args.bias.empty() ? nullptr : args.bias.as<float>() + column;
  Y* y = args.y.as<Y>() + row * y_stride + column;
  for (std::int64_t half = 0; half < columns; half += 16) {
    const __mmask16 lanes = valid_lanes(columns - half, 0);
    const __m512 shift = bias ? _mm512_maskz_loadu_ps(lanes, bias + half) : _mm512_setzero_ps();
    for (std::int64_t r = 0; r < rows; ++r) {
      Y* to = y + r * y_stride + half;
      __m512 value = _mm512_fmadd_ps(_mm512_loadu_ps(sums + r * kBlock + half), scale, shift);
      if constexpr (sizeof(Y) == sizeof(float)) {
        if (args.accumulate) value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(lanes, to));
        _mm512_mask_storeu_ps(to, lanes, value);
      } else {
        if (args.accumulate) {
          const __m512i wide = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, to));
          value = _mm512_add_ps(value, _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16)));
        }
        _mm256_mask_storeu_epi16(to, lanes, std::bit_cast<__m256i>(_mm512_cvtneps_pbh(value)));
      }
    }
  }
}

template <typename Y>
void multiply_band(const MatmulArgs& args, const Plan& plan, const std::uint32_t* b, std::int64_t band,
                   std::byte* scratch) {
  auto* a = reinterpret_cast<bf16*>(scratch);
  auto* sums = reinterpret_cast<float*>(scratch + plan.a_bytes());
  const std::int64_t first = band * plan.band, rows = std::min(plan.band, plan.rows - first);
  for (std::int64_t group = 0; group < plan.panels; group += kGroup)
    for (std::int64_t chunk = 0; chunk < plan.chunks; ++chunk) {
      const std::int64_t depth = plan.chunk_depth(chunk);
      // The only chunk serves all groups; otherwise packing it again costs 1 / 768 of the products.
      if (group == 0 || plan.chunks > 1)
        for (std::int64_t row = 0; row < rows; row += kBlock)
          pack_a_panel(a + row * depth, args, plan, chunk, first + row);
      for (std::int64_t panel = group; panel < std::min(group + kGroup, plan.panels); ++panel) {
        const std::uint32_t* b_panel = b + (chunk * plan.panels + panel) * plan.panel_pairs();
        for (std::int64_t row = 0; row < rows; row += kBlock) {
          float* block = plan.chunks > 1 ? sums + ((panel - group) * plan.band + row) * kBlock : sums;
          const auto multiply = chunk == 0 ? block_product<false> : block_product<true>;
          multiply(block, kBlock, {a + row * depth, 32, kBlockCount}, b_panel, kBlock, depth);
          if (chunk + 1 < plan.chunks) continue;
          store_block<Y>(args, block, first + row, panel * kBlock, plan.columns, std::min(kBlock, rows - row),
                         std::min(kBlock, plan.columns - panel * kBlock));
        }
      }
    }
}

}  // namespace

bool takes_matmul_amx(const MatmulArgs& args) {
  return args.a.dtype == DType::bf16 && args.y.shape[0] >= 32 && amx_usable();
}

void matmul_amx(Device& device, const MatmulArgs& args) {
  const Plan plan(args);
  const std::int64_t threads = omp_get_max_threads();
  auto* scratch = static_cast<std::byte*>(
      device.scratch(Scratch::kernel, static_cast<std::size_t>(plan.packed_bytes() + threads * plan.thread_bytes())));
  auto* b = reinterpret_cast<std::uint32_t*>(scratch);
  parallel_for(plan.chunks * plan.panels, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      pack_b_panel(b + i * plan.panel_pairs(), args, plan, i / plan.panels, i % plan.panels);
  });
  parallel_for(plan.bands, 1, [&](std::int64_t begin, std::int64_t end) {
    const TileSession session;
    std::byte* own = scratch + plan.packed_bytes() + omp_get_thread_num() * plan.thread_bytes();
    for (std::int64_t band = begin; band < end; ++band) {
      if (args.y.dtype == DType::bf16)
        multiply_band<bf16>(args, plan, b, band, own);
      else
        multiply_band<float>(args, plan, b, band, own);
    }
  });
}

}  // namespace filigree
HWY_POP_ATTRIBUTES
