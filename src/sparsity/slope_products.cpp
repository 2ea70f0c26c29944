// SLoPe's products: the kernels that can compute them, and the choice among these.
#include <algorithm>

#include "core/hash.h"
#include "core/random.h"
#include "kernels/matmul/matmul.h"
#include "kernels/nm/nm_cusparselt.h"
#include "kernels/nm/nm_pack.h"
#include "sparsity/product_shapes.h"
#include "sparsity/random_operand.h"
#include "sparsity/slope_weight.h"

namespace filigree {
namespace {

// Up to this many, as in decoding, a product reads the compressed weights and nothing else, whatever a plan chose.
constexpr std::int64_t kFewTokens = 16;

// Whether the sparse kernel can compute this very product: always on the CPU; on a GPU when a plan was made for it, or
// with few tokens.
bool serves(Device& device, const NmMatmulArgs& args) {
  if constexpr (kBuiltWithCuda)
    if (device.is_cuda()) return cuda::nm_matmul_serves(device, args);
  return true;
}

}  // namespace

void SlopeWeight::forward(Device& device, const Tensor& y, const Tensor& x, const Tensor& bias) {
  const NmMatmulArgs args{.y = y, .x = x, .weight = row_pruned(), .bias = bias};
  if (x.shape[0] <= kFewTokens)
    multiply(device, Backend::sparse, args);
  else if (device.is_cuda() && spec_.mode == Mode::inference)
    infer(device, args);
  else
    multiply(device, forward_backend_, args);
}

void SlopeWeight::input_gradient(Device& device, const Tensor& dx, const Tensor& dy) {
  multiply(device, dx_backend_, {.y = dx, .x = dy, .weight = column_pruned(), .scale = spec_.dx_rescale});
}

void SlopeWeight::weight_gradient(Device& device, const Tensor& dy, const Tensor& x, bool accumulate) {
  gradient_product(device, dw_backend_, dy, x, accumulate);
}

void SlopeWeight::multiply(Device& device, Backend backend, const NmMatmulArgs& args) const {
  if (backend == Backend::sparse && serves(device, args)) {
    nm_matmul(device, args);
    return;
  }
  const Shape shape{args.weight.rows, args.weight.columns};
  const std::size_t bytes = static_cast<std::size_t>(shape.count()) * size_of(spec_.dtype);
  const Tensor dense{device.scratch(Scratch::layer, bytes), spec_.dtype, shape};
  nm_expand(device, dense, args.weight);
  matmul(device, {.y = args.y, .a = args.x, .b = dense, .bias = args.bias, .transpose_b = true, .scale = args.scale});
}

// The rows behind the tokens are whatever lies in scratch memory: no other row depends on them.
void SlopeWeight::infer(Device& device, const NmMatmulArgs& args) {
  const std::int64_t tokens = args.x.shape[0], padded = padded_tokens(tokens);
  const bool dense = padded == planned_tokens_ && forward_backend_ == Backend::dense;
  if (dense || !planned_for_inference(device, padded, !args.bias.empty()))
    return multiply(device, Backend::dense, args);
  if (padded == tokens) return nm_matmul(device, args);
  const Shape x_shape{padded, spec_.inputs}, y_shape{padded, spec_.outputs};
  const std::size_t element = size_of(spec_.dtype), x_bytes = static_cast<std::size_t>(x_shape.count()) * element,
                    y_bytes = static_cast<std::size_t>(y_shape.count()) * element;  // x's: a multiple of 1024
  auto* scratch = static_cast<std::byte*>(device.scratch(Scratch::layer, x_bytes + y_bytes));
  NmMatmulArgs whole = args;
  whole.x = {scratch, spec_.dtype, x_shape};
  whole.y = {scratch + x_bytes, spec_.dtype, y_shape};
  device.copy(whole.x.slice(0, tokens), args.x);
  nm_matmul(device, whole);
  device.copy(args.y, whole.y.slice(0, tokens));
}

bool SlopeWeight::planned_for_inference(Device& device, std::int64_t tokens, bool bias) {
  if constexpr (kBuiltWithCuda) {
    const NmMatrix weight = row_pruned();
    if (weight.metadata.empty()) return false;
    cuda::CusparseltPlanned planned = cuda::cusparselt_planned(device, {weight.rows, weight.columns, tokens});
    if (!planned.asked || (bias && !planned.bias_asked)) {
      const Random random(spec_.seed, RandomPurpose::benchmark, fnv1a32(spec_.name));
      RandomOperand x(device, random, spec_.dtype, {tokens, spec_.inputs});
      RandomOperand y(device, random, spec_.dtype, {tokens, spec_.outputs});
      RandomOperand biases(device, random, DType::f32, {spec_.outputs});
      planned = cuda::cusparselt_plan(
          device, {.y = y.get(), .x = x.get(), .weight = weight, .bias = bias ? biases.get() : Tensor{}},
          cuda::kUsualAlgorithm);
    }
    if (planned.algorithm >= 0) return true;
    refusal_ = planned.refusal;
  }
  return false;
}

void SlopeWeight::gradient_product(Device& device, Backend backend, const Tensor& dy, const Tensor& x,
                                   bool accumulate) const {
  if (backend == Backend::sparse) {
    nm_matmul_gradient(device, {.gradient = values_.gradient(),
                                .dy = dy,
                                .x = x,
                                .mask = mask_,
                                .pattern = spec_.pattern,
                                .accumulate = accumulate});
    return;
  }
  // On a GPU in bands of rows: a dense fp32 gradient never exists.
  const std::int64_t outputs = spec_.outputs, inputs = spec_.inputs, tokens = dy.shape[0];
  const std::int64_t band = device.is_cuda() ? gradient_band(outputs, inputs, device.gpu().multiprocessors) : outputs;
  void* scratch = device.scratch(Scratch::layer, static_cast<std::size_t>(band * inputs) * sizeof(float));
  for (std::int64_t row = 0; row < outputs; row += band) {
    const std::int64_t rows = std::min(band, outputs - row);
    const bool all = rows == outputs;
    const Tensor dense{scratch, DType::f32, {rows, inputs}};
    const Tensor part{static_cast<std::byte*>(dy.data) + row * static_cast<std::int64_t>(size_of(dy.dtype)),
                      dy.dtype,
                      {tokens, rows}};
    matmul(device, {.y = dense, .a = part, .b = x, .transpose_a = true, .a_stride = all ? 0 : outputs});
    const NmMatrix gradient{values_.gradient().slice(row, rows), mask_.view().slice(row, rows), rows, inputs,
                            spec_.pattern};
    nm_compress(device, gradient, dense, accumulate);
  }
}

std::string SlopeWeight::plan_subject() const {
  return std::to_string(spec_.outputs) + "x" + std::to_string(spec_.inputs) + " " + to_string(spec_.pattern) + " " +
         std::string(name_of(spec_.dtype));
}

std::optional<int> SlopeWeight::ready(Device& device, const PlanTable& table, const std::string& key,
                                      const NmMatrix& weight, std::int64_t tokens, bool bias,
                                      const std::function<NmMatmulArgs()>& product) {
  if constexpr (kBuiltWithCuda) {
    if (device.is_cuda()) {
      const auto known = table.entries().find(key);
      const bool is_known = known != table.entries().end();
      if (weight.metadata.empty() || (is_known && known->second.backend == Backend::dense)) return std::nullopt;
      int algorithm = table.timing() ? cuda::kFastestAlgorithm : cuda::kUsualAlgorithm;
      if (is_known && known->second.algorithm >= 0) algorithm = known->second.algorithm;
      cuda::CusparseltPlanned planned = cuda::cusparselt_planned(device, {weight.rows, weight.columns, tokens});
      if (!planned.asked || (bias && !planned.bias_asked))
        planned = cuda::cusparselt_plan(device, product(), algorithm);
      if (planned.algorithm >= 0) return planned.algorithm;
      refusal_ = planned.refusal;
      return std::nullopt;
    }
  }
  return -1;
}

void SlopeWeight::plan(Device& device, PlanTable& table, std::int64_t tokens) {
  if (device.is_cuda() && spec_.mode == Mode::inference) {
    if (tokens <= kFewTokens) return;
    tokens = padded_tokens(tokens);
    planned_tokens_ = tokens;
  }
  const Random random(spec_.seed, RandomPurpose::benchmark, fnv1a32(spec_.name));
  RandomOperand x(device, random, spec_.dtype, {tokens, spec_.inputs});
  RandomOperand y(device, random, spec_.dtype, {tokens, spec_.outputs});
  RandomOperand bias(device, random, DType::f32, {spec_.outputs});
  // Forward products may have a bias: a GPU's plan must know.
  const auto choose = [&](const char* name, const NmMatrix& weight, bool with_bias,
                          const std::function<NmMatmulArgs()>& product) {
    const std::string key = plan_key(name, plan_subject(), tokens, device.is_cuda());
    const std::optional<int> algorithm = ready(device, table, key, weight, tokens, with_bias, [&] {
      NmMatmulArgs args = product();
      if (with_bias) args.bias = bias.get();
      return args;
    });
    PlanCandidates candidates;
    if (algorithm) candidates.sparse = [&] { multiply(device, Backend::sparse, product()); };
    candidates.dense = [&] { multiply(device, Backend::dense, product()); };
    candidates.algorithm = algorithm.value_or(-1);
    if (!algorithm) candidates.refusal = refusal_;
    return table.choose(device, key, candidates);
  };
  const NmMatrix rows = row_pruned(), columns = column_pruned();
  forward_backend_ =
      choose("forward", rows, true, [&] { return NmMatmulArgs{.y = y.get(), .x = x.get(), .weight = rows}; });
  if (spec_.mode == Mode::inference) return;
  if (!device.is_cuda())
    dw_backend_ = table.choose(device, plan_key("dw", plan_subject(), tokens, false),
                               {.sparse = [&] { gradient_product(device, Backend::sparse, y.get(), x.get(), false); },
                                .dense = [&] { gradient_product(device, Backend::dense, y.get(), x.get(), false); }});
  dx_backend_ = choose("dx", columns, false, [&] {
    return NmMatmulArgs{.y = x.get(), .x = y.get(), .weight = columns, .scale = spec_.dx_rescale};
  });
}

}  // namespace filigree
