// Drives the product: checks, blocking, threads, scratch memory.
//
// Two shapes of work. A few tokens: nm_decode_vectors.cpp streams the weights, threads share the outputs. Many:
//
//   all threads pack the weights: 3 rows at a time, columns sorted by who keeps them
//   each thread, for its tokens (and its outputs, when tokens are few):
//     for each panel of tokens               x transposed, in L2
//       for each block of rows               their sums in L2
//         for each block of columns          the panel's part in L1, weights streaming past: multiply
//         add bias, round, transpose back into y
//
// Packing costs about 0.4 ns a weight, once, and its result is read at 2 to 3 GB/s: what each panel needs again lies in
// L2. (Packing block by block for 8 panels at once kept the weights in L2 instead and the panels in L3: 10 % slower.)
//
// An output is summed in the order of column blocks and, within one, of its row group's subsets: neither depends on
// tokens, threads or cache sizes.
#include "kernels/nm/nm_matmul.h"

#include <algorithm>
#include <cstddef>

#include "core/parallel.h"
#include "kernels/nm/nm_dot_matmul.h"
#include "kernels/nm/nm_views.h"

namespace filigree {
namespace {

constexpr std::int64_t round_up(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

void check(const NmMatmulArgs& args) {
  const NmMatrix& w = args.weight;
  const Shape& x = args.x.shape;
  const Shape& y = args.y.shape;
  require(w.pattern.keep >= 1 && w.pattern.keep < w.pattern.of && w.pattern.of <= 32,
          "nm_matmul: no such pattern: " + to_string(w.pattern));
  require(w.columns % w.pattern.of == 0, "nm_matmul: inputs are no multiple of the pattern's group");
  require(x.rank() == 2 && y.rank() == 2 && x[0] == y[0] && x[1] == w.columns && y[1] == w.rows,
          "nm_matmul: shapes do not fit: y " + to_string(y) + ", x " + to_string(x) + ", weight (" +
              std::to_string(w.rows) + ", " + std::to_string(w.columns) + ")");
  require(w.values.shape == Shape{w.rows, kept_columns(w.columns, w.pattern)} &&
              w.mask.shape == Shape{w.rows, mask_bytes(w.columns)} && w.mask.dtype == DType::u8,
          "nm_matmul: values or mask have another shape than the weight says");
  require((args.x.dtype == DType::f32 || args.x.dtype == DType::bf16) && w.values.dtype == args.x.dtype,
          "nm_matmul: x and weight must both be fp32 or both bf16");
  require(args.y.dtype == DType::f32 || (args.y.dtype == DType::bf16 && args.x.dtype == DType::bf16),
          "nm_matmul: y must be fp32, or bf16 with bf16 operands");
  require(args.bias.empty() || (args.bias.dtype == DType::f32 && args.bias.count() == w.rows),
          "nm_matmul: bias must be fp32 with one entry an output");
}

void decode(Device& device, const NmMatmulArgs& args, const NmTarget& target) {
  NmDecodeArgs call;
  call.out = store_of(args);
  call.weights = rows_of(args.weight);
  const std::int64_t tokens = args.x.shape[0];
  call.x_stride = round_up(args.weight.columns, 64);
  const bool words = target.words && args.x.dtype == DType::bf16;

  auto* x = static_cast<float*>(
      device.scratch(Scratch::kernel, static_cast<std::size_t>(tokens * call.x_stride) * sizeof(float)));
  std::fill_n(x, tokens * call.x_stride, 0.0f);
  with_compute_type(args.x.dtype, [&]<typename T>() {
    const T* from = args.x.as<T>();
    for (std::int64_t t = 0; t < tokens; ++t)
      for (std::int64_t k = 0; k < args.weight.columns; ++k) {
        const std::int64_t place = words ? k / 32 * 32 + k % 2 * 16 + k % 32 / 2 : k;
        x[t * call.x_stride + place] = static_cast<float>(from[t * args.weight.columns + k]);
      }
  });
  call.x = x;
  const auto kernel = words ? nm_decode_words : nm_decode_kernels(target.vectors).decode;
  parallel_for(args.weight.rows, 16, [&](std::int64_t begin, std::int64_t end) {
    // Rows are few enough a call for their weights to stay in cache while the next tokens come.
    for (std::int64_t row = begin; row < end; row += 64)
      for (std::int64_t token = 0; token < tokens; token += kNmDecodeTokens) {
        NmDecodeArgs some = call;
        some.tokens = static_cast<int>(std::min(kNmDecodeTokens, tokens - token));
        some.x += token * call.x_stride;
        some.out.y = static_cast<std::byte*>(call.out.y) +
                     token * call.out.row_stride * static_cast<std::int64_t>(size_of(call.out.dtype));
        kernel(some, row, std::min(end, row + 64));
      }
  });
}

// All weights as nm_matmul_vectors.cpp reads them: one block of columns after the other.
class Packed {
 public:
  Packed(const NmMatrix& weight, const NmTarget& target, std::int64_t column_block)
      : weight_(weight), target_(target), column_block_(column_block) {
    groups_ = (weight.rows + kNmRowGroup - 1) / kNmRowGroup;
    column_stride_ = round_up(column_block, 64);
    weight_stride_ = kept_columns(column_block, weight.pattern);
    weight_bytes_ = round_up(groups_ * kNmRowGroup * weight_stride_ * 4, 64);
    column_bytes_ = groups_ * column_stride_;
    block_bytes_ = weight_bytes_ + column_bytes_ + round_up(groups_ * 8, 64);
  }

  std::int64_t bytes() const { return block_bytes_ * ((weight_.columns + column_block_ - 1) / column_block_); }
  void use(std::byte* memory) { memory_ = memory; }

  // The block of columns from `column` on, groups [begin, end).
  NmPackedRows at(std::int64_t column, std::int64_t begin, std::int64_t end) const {
    std::byte* block = memory_ + column / column_block_ * block_bytes_;
    NmPackedRows rows;
    rows.weights = reinterpret_cast<float*>(block) + begin * kNmRowGroup * weight_stride_;
    rows.columns = reinterpret_cast<std::uint8_t*>(block + weight_bytes_) + begin * column_stride_;
    rows.counts = reinterpret_cast<std::uint8_t*>(block + weight_bytes_ + column_bytes_) + begin * 8;
    rows.groups = end - begin;
    rows.column_stride = column_stride_;
    rows.weight_stride = weight_stride_;
    return rows;
  }

  void pack() const {
    constexpr std::int64_t kGrain = 16;  // 48 rows: as many pages as the first translation buffer holds with ease
    const auto& kernels = nm_matmul_kernels(target_.vectors);
    parallel_for(groups_, kGrain, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t group = first; group < last; group += kGrain)
        for (std::int64_t column = 0; column < weight_.columns; column += column_block_) {
          const std::int64_t columns = std::min(column_block_, weight_.columns - column);
          const NmRows in = block_of(weight_, group * kNmRowGroup, kGrain * kNmRowGroup, column, columns);
          const NmPackedRows out = at(column, group, std::min(last, group + kGrain));
          if (target_.words)
            nm_pack_rows_words(out, in, static_cast<int>(kept_columns(columns, weight_.pattern)));
          else
            kernels.pack_rows(out, in);
        }
    });
  }

 private:
  const NmMatrix& weight_;
  const NmTarget& target_;
  std::int64_t column_block_;
  std::int64_t groups_ = 0;
  std::int64_t column_stride_ = 0;
  std::int64_t weight_stride_ = 0;
  std::int64_t weight_bytes_ = 0;  // of one block of columns
  std::int64_t column_bytes_ = 0;
  std::int64_t block_bytes_ = 0;
  std::byte* memory_ = nullptr;
};

// One thread's memory and work.
class Worker {
 public:
  Worker(const NmMatmulArgs& args, const NmTarget& target, const NmMatmulPlan& plan, const Packed& packed)
      : args_(args),
        plan_(plan),
        packed_(packed),
        kernels_(nm_matmul_kernels(target.vectors)),
        lanes_(nm_lanes(target.vectors)),
        full_(plan.vectors * lanes_) {
    panel_bytes_ = full_ * args.weight.columns * 4;
    sum_bytes_ = full_ * plan.row_block * 4;
  }

  std::int64_t bytes() const { return panel_bytes_ + sum_bytes_; }
  void use(std::byte* memory) {
    panel_ = reinterpret_cast<float*>(memory);
    sums_ = reinterpret_cast<float*>(memory + panel_bytes_);
  }

  void run(std::int64_t token_begin, std::int64_t token_end, std::int64_t row_begin, std::int64_t row_end) {
    for (token_ = token_begin; token_ < token_end; token_ += full_) {
      tokens_ = std::min(full_, token_end - token_);
      vectors_ = static_cast<int>((tokens_ + lanes_ - 1) / lanes_);
      load_panel();
      for (std::int64_t row = row_begin; row < row_end; row += plan_.row_block)
        multiply_rows(row, std::min(plan_.row_block, row_end - row));
    }
  }

 private:
  std::int64_t width() const { return vectors_ * lanes_; }

  void load_panel() {
    const std::int64_t columns = args_.weight.columns;
    const auto* x = static_cast<const std::byte*>(args_.x.data) +
                    token_ * columns * static_cast<std::int64_t>(size_of(args_.x.dtype));
    kernels_.load_panel(panel_, width(), x, args_.x.dtype, columns, tokens_, columns);
  }

  void multiply_rows(std::int64_t row, std::int64_t rows) {
    const NmMatrix& weight = args_.weight;
    if (weight.columns == 0) std::fill_n(sums_, plan_.row_block * full_, 0.0f);
    for (std::int64_t column = 0; column < weight.columns; column += plan_.column_block) {
      const std::int64_t columns = std::min(plan_.column_block, weight.columns - column);
      const NmPackedRows packed = packed_.at(column, row / kNmRowGroup, (row + rows + kNmRowGroup - 1) / kNmRowGroup);
      const std::int64_t next = column + columns < weight.columns ? column + columns : 0;
      kernels_.multiply(sums_, packed, panel_ + column * width(), vectors_, column == 0, panel_ + next * width());
    }
    kernels_.store_rows(store_of(args_, token_, row), sums_, width(), tokens_, rows);
  }

  const NmMatmulArgs& args_;
  const NmMatmulPlan& plan_;
  const Packed& packed_;
  const NmMatmulKernels& kernels_;
  std::int64_t lanes_;
  std::int64_t full_;  // tokens of a full panel
  std::int64_t panel_bytes_ = 0, sum_bytes_ = 0;
  float* panel_ = nullptr;  // (columns, width)
  float* sums_ = nullptr;   // (row_block, width)
  std::int64_t token_ = 0;  // of the present panel
  std::int64_t tokens_ = 0;
  int vectors_ = 0;
};

}  // namespace

void nm_matmul(Device& device, const NmMatmulArgs& args) {
  if constexpr (kBuiltWithCuda)
    if (device.is_cuda()) {
      check(args);
      return cuda::nm_matmul(device, args);
    }
  nm_matmul(device, args, nm_target(cpu_features()));
}

void nm_matmul(Device& device, const NmMatmulArgs& args, const NmTarget& target) {
  check(args);
  const std::int64_t tokens = args.x.shape[0];
  const std::int64_t rows = args.weight.rows;
  if (tokens == 0 || rows == 0) return;
  const NmMatmulPlan plan =
      plan_nm_matmul(tokens, rows, args.weight.pattern, args.x.dtype, target, cache_sizes(), device.threads());
  if (plan.decode) return decode(device, args, target);
  if (plan.bf16_dot) return nm_dot_matmul(device, args);

  const std::int64_t lanes = nm_lanes(target.vectors);
  const std::int64_t items = plan.token_splits * plan.row_splits;
  Packed packed(args.weight, target, plan.column_block);
  const std::int64_t packed_bytes = packed.bytes();
  const std::int64_t bytes = Worker(args, target, plan, packed).bytes();
  auto* memory =
      static_cast<std::byte*>(device.scratch(Scratch::kernel, static_cast<std::size_t>(packed_bytes + items * bytes)));
  packed.use(memory);
  packed.pack();
  const std::int64_t token_vectors = (tokens + lanes - 1) / lanes;
  const std::int64_t row_groups = (rows + kNmRowGroup - 1) / kNmRowGroup;
  parallel_for(items, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t item = begin; item < end; ++item) {
      const std::int64_t token_part = item / plan.row_splits;
      const std::int64_t row_part = item % plan.row_splits;
      Worker worker(args, target, plan, packed);
      worker.use(memory + packed_bytes + item * bytes);
      worker.run(token_vectors * token_part / plan.token_splits * lanes,
                 std::min(tokens, token_vectors * (token_part + 1) / plan.token_splits * lanes),
                 row_groups * row_part / plan.row_splits * kNmRowGroup,
                 std::min(rows, row_groups * (row_part + 1) / plan.row_splits * kNmRowGroup));
    }
  });
}

}  // namespace filigree
