// Drives the product: checks, blocking, threads, scratch memory.
//
// Two shapes of work. A few tokens: nm_decode_vectors.cpp streams the weights once, threads share the outputs. Many:
// each thread owns a range of tokens (and of outputs, when tokens are few) and walks
//
//   for each group of panels                 a panel: `vectors` vectors of tokens of x, transposed once
//     for each block of rows                 sums of the group's panels, in L2
//       for each block of columns            packed once: 3 rows at a time, columns sorted by who keeps them
//         for each panel of the group        its columns in L1: multiply
//       for each panel: add bias, round, transpose back into y
//
// An output is summed in the order of column blocks and, within one, of its row group's subsets: neither depends on
// tokens, threads or cache sizes.
#include "kernels/nm/nm_matmul.h"

#include <algorithm>
#include <cstddef>

#include "core/parallel.h"
#include "kernels/nm/nm_vectors.h"

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

NmStore store_of(const NmMatmulArgs& args) {
  NmStore out;
  out.y = args.y.data;
  out.dtype = args.y.dtype;
  out.row_stride = args.weight.rows;
  out.bias = args.bias.empty() ? nullptr : args.bias.as<float>();
  out.scale = args.scale;
  out.accumulate = args.accumulate;
  return out;
}

NmRows rows_of(const NmMatrix& matrix) {
  NmRows rows;
  rows.values = matrix.values.data;
  rows.dtype = matrix.values.dtype;
  rows.value_stride = kept_columns(matrix.columns, matrix.pattern);
  rows.mask = static_cast<const std::uint8_t*>(matrix.mask.data);
  rows.mask_stride = mask_bytes(matrix.columns);
  rows.columns = matrix.columns;
  rows.rows = matrix.rows;
  return rows;
}

void decode(Device& device, const NmMatmulArgs& args, const NmTarget& target) {
  NmDecodeArgs call;
  call.out = store_of(args);
  call.weights = rows_of(args.weight);
  call.tokens = static_cast<int>(args.x.shape[0]);
  call.x_stride = round_up(args.weight.columns, 64);
  const bool words = target.words && args.x.dtype == DType::bf16;

  auto* x = static_cast<float*>(
      device.scratch(Scratch::kernel, static_cast<std::size_t>(call.tokens * call.x_stride) * sizeof(float)));
  std::fill_n(x, call.tokens * call.x_stride, 0.0f);
  with_compute_type(args.x.dtype, [&]<typename T>() {
    const T* from = args.x.as<T>();
    for (std::int64_t t = 0; t < call.tokens; ++t)
      for (std::int64_t k = 0; k < args.weight.columns; ++k) {
        const std::int64_t place = words ? k / 32 * 32 + k % 2 * 16 + k % 32 / 2 : k;
        x[t * call.x_stride + place] = static_cast<float>(from[t * args.weight.columns + k]);
      }
  });
  call.x = x;
  const auto kernel = words ? nm_decode_words : nm_decode_kernels(target.vectors).decode;
  parallel_for(args.weight.rows, 16, [&](std::int64_t begin, std::int64_t end) { kernel(call, begin, end); });
}

// One thread's memory and work. Everything in it is 64-byte aligned.
class Worker {
 public:
  Worker(const NmMatmulArgs& args, const NmTarget& target, const NmMatmulPlan& plan)
      : args_(args),
        plan_(plan),
        kernels_(nm_matmul_kernels(target.vectors)),
        words_(target.words),
        lanes_(nm_lanes(target.vectors)) {
    const Pattern pattern = args.weight.pattern;
    packed_.groups = plan.row_block / kNmRowGroup;
    packed_.column_stride = round_up(plan.column_block, 64);
    packed_.weight_stride = round_up(kept_columns(plan.column_block, pattern) + lanes_, 16);
    const std::int64_t full = plan.vectors * lanes_;
    panel_elements_ = full * (plan.bf16_dot ? args.weight.columns / 4 * 6 : args.weight.columns);
    parts_[0] = plan.panels * panel_elements_ * 4;
    parts_[1] = plan.panels * plan.row_block * full * 4;
    parts_[2] = plan.bf16_dot ? plan.column_block * full * 4 : packed_.groups * kNmRowGroup * packed_.weight_stride * 4;
    parts_[3] = plan.bf16_dot ? 0 : packed_.groups * packed_.column_stride + 64;  // a vector may reach beyond the last
    parts_[4] = plan.bf16_dot ? 0 : round_up(packed_.groups * 8, 64);
  }

  std::int64_t bytes() const { return parts_[0] + parts_[1] + parts_[2] + parts_[3] + parts_[4]; }

  void use(std::byte* memory) {
    panels_ = reinterpret_cast<float*>(memory);
    sums_ = reinterpret_cast<float*>(memory += parts_[0]);
    packed_.weights = reinterpret_cast<float*>(memory += parts_[1]);
    packed_.columns = reinterpret_cast<std::uint8_t*>(memory += parts_[2]);
    packed_.counts = reinterpret_cast<std::uint8_t*>(memory + parts_[3]);
  }

  void run(std::int64_t token_begin, std::int64_t token_end, std::int64_t row_begin, std::int64_t row_end) {
    const std::int64_t full = plan_.vectors * lanes_;
    for (std::int64_t token = token_begin; token < token_end; token += plan_.panels * full) {
      tokens_ = std::min(token_end - token, plan_.panels * full);
      load_panels(token);
      for (std::int64_t row = row_begin; row < row_end; row += plan_.row_block)
        multiply_rows(token, row, std::min(plan_.row_block, row_end - row));
    }
  }

 private:
  std::int64_t panels() const { return (tokens_ + plan_.vectors * lanes_ - 1) / (plan_.vectors * lanes_); }
  std::int64_t tokens_in(std::int64_t panel) const {
    return std::min(tokens_ - panel * plan_.vectors * lanes_, plan_.vectors * lanes_);
  }
  int vectors_in(std::int64_t panel) const { return static_cast<int>((tokens_in(panel) + lanes_ - 1) / lanes_); }
  float* panel_at(std::int64_t panel) const { return panels_ + panel * panel_elements_; }

  void load_panels(std::int64_t token) {
    const std::int64_t columns = args_.weight.columns;
    const auto* x = static_cast<const std::byte*>(args_.x.data);
    const std::int64_t element = static_cast<std::int64_t>(size_of(args_.x.dtype));
    for (std::int64_t panel = 0; panel < panels(); ++panel) {
      const std::int64_t width = vectors_in(panel) * lanes_;
      const std::byte* from = x + (token + panel * plan_.vectors * lanes_) * columns * element;
      if (!plan_.bf16_dot) {
        kernels_.load_panel(panel_at(panel), width, from, args_.x.dtype, columns, tokens_in(panel), columns);
        continue;
      }
      auto* pairs = reinterpret_cast<std::uint32_t*>(panel_at(panel));
      for (std::int64_t column = 0; column < columns; column += plan_.column_block) {
        const std::int64_t count = std::min(plan_.column_block, columns - column);
        kernels_.load_panel(packed_.weights, width, from + column * element, args_.x.dtype, columns, tokens_in(panel),
                            count);
        nm_dot_kernels().pair_columns(pairs + column / 4 * 6 * width, packed_.weights, width, count);
      }
    }
  }

  void multiply_rows(std::int64_t token, std::int64_t row, std::int64_t rows) {
    const NmMatrix& weight = args_.weight;
    const std::int64_t panel_sums = plan_.row_block * plan_.vectors * lanes_;
    if (weight.columns == 0) std::fill_n(sums_, plan_.panels * panel_sums, 0.0f);
    NmRows in = rows_of(weight);
    in.rows = rows;
    in.mask += row * in.mask_stride;
    const auto* values = static_cast<const std::byte*>(in.values);
    NmPackedRows packed = packed_;
    packed.groups = (rows + kNmRowGroup - 1) / kNmRowGroup;
    for (std::int64_t column = 0; column < weight.columns; column += plan_.column_block) {
      in.begin = column;
      in.columns = std::min(plan_.column_block, weight.columns - column);
      in.values = values + (row * in.value_stride + kept_columns(column, weight.pattern)) *
                               static_cast<std::int64_t>(size_of(in.dtype));
      if (words_ && !plan_.bf16_dot)
        nm_pack_rows_words(packed, in, static_cast<int>(kept_columns(in.columns, weight.pattern)));
      else if (!plan_.bf16_dot)
        kernels_.pack_rows(packed, in);
      for (std::int64_t panel = 0; panel < panels(); ++panel) {
        const int vectors = vectors_in(panel);
        const float* block = panel_at(panel) + (plan_.bf16_dot ? column / 4 * 6 : column) * vectors * lanes_;
        float* sums = sums_ + panel * panel_sums;
        if (plan_.bf16_dot) {
          nm_dot_kernels().multiply(sums, in, reinterpret_cast<const std::uint32_t*>(block), vectors, column == 0);
        } else {
          const bool another = panel + 1 < panels();
          kernels_.multiply(sums, packed, block, vectors, column == 0,
                            another ? panel_at(panel + 1) + column * vectors_in(panel + 1) * lanes_ : nullptr);
        }
      }
    }
    for (std::int64_t panel = 0; panel < panels(); ++panel) {
      NmStore out = store_of(args_);
      const std::int64_t first = (token + panel * plan_.vectors * lanes_) * out.row_stride + row;
      out.y = static_cast<std::byte*>(out.y) + first * static_cast<std::int64_t>(size_of(out.dtype));
      if (out.bias) out.bias += row;
      kernels_.store_rows(out, sums_ + panel * panel_sums, vectors_in(panel) * lanes_, tokens_in(panel), rows);
    }
  }

  const NmMatmulArgs& args_;
  const NmMatmulPlan& plan_;
  const NmMatmulKernels& kernels_;
  bool words_;
  std::int64_t lanes_;
  std::int64_t panel_elements_ = 0;  // a full panel, fp32 or pairs
  std::int64_t parts_[5] = {};       // bytes of panels, sums, packed weights, columns, counts
  float* panels_ = nullptr;          // (panels, columns, width)
  float* sums_ = nullptr;            // (panels, row_block, width)
  NmPackedRows packed_;
  std::int64_t tokens_ = 0;  // of the present group of panels
};

}  // namespace

void nm_matmul(Device& device, const NmMatmulArgs& args) {
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

  const std::int64_t lanes = nm_lanes(target.vectors);
  const std::int64_t items = plan.token_splits * plan.row_splits;
  const std::int64_t bytes = Worker(args, target, plan).bytes();
  auto* memory = static_cast<std::byte*>(device.scratch(Scratch::kernel, static_cast<std::size_t>(items * bytes)));
  const std::int64_t token_vectors = (tokens + lanes - 1) / lanes;
  const std::int64_t row_groups = (rows + kNmRowGroup - 1) / kNmRowGroup;
  parallel_for(items, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t item = begin; item < end; ++item) {
      const std::int64_t token_part = item / plan.row_splits;
      const std::int64_t row_part = item % plan.row_splits;
      Worker worker(args, target, plan);
      worker.use(memory + item * bytes);
      worker.run(token_vectors * token_part / plan.token_splits * lanes,
                 std::min(tokens, token_vectors * (token_part + 1) / plan.token_splits * lanes),
                 row_groups * row_part / plan.row_splits * kNmRowGroup,
                 std::min(rows, row_groups * (row_part + 1) / plan.row_splits * kNmRowGroup));
    }
  });
}

}  // namespace filigree
