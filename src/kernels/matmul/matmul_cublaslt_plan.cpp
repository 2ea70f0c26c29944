// Descriptors, and which forms of a product are tried.
//
// cuBLASLt thinks in columns: a row-major (R, C) matrix is its column-major (C, R). So y (M, N) = op(a) op(b) is asked
// for as yᵀ (N, M) = op(b)ᵀ op(a)ᵀ: its A is b, its B is a, each with the same transposition, and the bias, one entry a
// row of yᵀ, is one a column of y.
#include "kernels/matmul/matmul_cublaslt_plan.h"

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <span>
#include <utility>

namespace filigree::cuda {
namespace {

cudaDataType_t type_of(DType dtype) {
  return dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

std::uint32_t alignment_of(const void* data) {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  return static_cast<std::uint32_t>(std::min<std::uintptr_t>(address & -address, 256));
}

// A row-major matrix as cuBLASLt sees it; stride: elements between its rows, if they are not its columns alone.
CublasLtLayout layout(DType dtype, std::int64_t rows, std::int64_t columns, std::int64_t stride = 0) {
  cublasLtMatrixLayout_t made = nullptr;
  check(cublasLtMatrixLayoutCreate(&made, type_of(dtype), static_cast<std::uint64_t>(columns),
                                   static_cast<std::uint64_t>(rows), stride == 0 ? columns : stride));
  return CublasLtLayout(made);
}

void set(const CublasLtOperation& operation, cublasLtMatmulDescAttributes_t attribute, const auto& value) {
  check(cublasLtMatmulDescSetAttribute(operation.get(), attribute, &value, sizeof(value)));
}

bool is_gelu(Epilogue epilogue) {
  return epilogue == Epilogue::gelu_forward || epilogue == Epilogue::gelu_backward;
}

// GELU's pre-activation is the epilogue's auxiliary matrix, laid out as y is. cuBLASLt wants its rows to be multiples
// of 8 elements; both arrays are then asked for at addresses to match. fp32, which nobody chooses for speed, stays
// separate.
bool can_fuse(const MatmulShape& shape) {
  constexpr std::uint32_t kAlignment = 16;
  const bool places =
      !is_gelu(shape.epilogue) || (shape.pre_activation_alignment >= kAlignment && shape.y_alignment >= kAlignment);
  return shape.operands == DType::bf16 && shape.result == DType::bf16 && shape.columns % 8 == 0 && places;
}

cublasLtEpilogue_t epilogue_of(const MatmulShape& shape, bool bias) {
  switch (shape.epilogue) {
    case Epilogue::none:
      break;
    case Epilogue::gelu_forward:
      return bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    case Epilogue::gelu_backward:
      return CUBLASLT_EPILOGUE_DGELU;
    case Epilogue::relu_forward:
      return bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
  }
  return bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

// Without an algorithm yet. fp32 sums, and fp32 operands are multiplied as they are: TF32 would be another compute
// type.
MatmulPlan describe(const MatmulShape& shape, BiasForm bias) {
  MatmulPlan plan;
  plan.bias = bias;
  plan.reads_y = shape.accumulate || bias == BiasForm::before;
  cublasLtMatmulDesc_t operation = nullptr;
  check(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  plan.operation.reset(operation);
  const cublasOperation_t transpose_a = shape.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t transpose_b = shape.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  set(plan.operation, CUBLASLT_MATMUL_DESC_TRANSA, transpose_b);
  set(plan.operation, CUBLASLT_MATMUL_DESC_TRANSB, transpose_a);
  set(plan.operation, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(shape, bias == BiasForm::epilogue));
  if (is_gelu(shape.epilogue)) set(plan.operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, shape.columns);
  plan.y = layout(shape.result, shape.rows, shape.columns);
  plan.a = shape.transpose_a ? layout(shape.operands, shape.depth, shape.rows, shape.a_stride)
                             : layout(shape.operands, shape.rows, shape.depth, shape.a_stride);
  plan.b = shape.transpose_b ? layout(shape.operands, shape.columns, shape.depth)
                             : layout(shape.operands, shape.depth, shape.columns);
  return plan;
}

// The operands of the epilogue. cuBLASLt adds the bias after scaling, as matmul.h does.
void set_pointers(const MatmulPlan& plan, const MatmulArgs& args, const void* bias) {
  if (plan.bias == BiasForm::epilogue) set(plan.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  if (is_gelu(args.epilogue)) set(plan.operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, args.pre_activation.data);
}

// Of the bias, as the product will read it. Its values do not matter to a timing, its address does to the choice.
const void* bias_place(const MatmulPlan& plan, const MatmulArgs& args, const void* scratch) {
  return plan.bias_bytes(args) != 0 ? scratch : args.bias.data;
}

// One form of a product, if cuBLASLt has an algorithm for it.
std::optional<MatmulPlan> plan_form(Device& device, cublasLtHandle_t handle, const MatmulShape& shape,
                                    const MatmulArgs& args, BiasForm form) {
  MatmulPlan plan = describe(shape, form);
  const std::size_t bias_bytes = plan.bias_bytes(args);
  auto* scratch = static_cast<std::byte*>(device.scratch(Scratch::kernel, bias_bytes + kMostWorkspace));
  const void* bias = bias_place(plan, args, scratch);
  set_pointers(plan, args, bias);
  if (!find_algorithm(device, handle, shape, args, bias, scratch + bias_bytes, plan)) return std::nullopt;
  return plan;
}

// The faster form of a product with an epilogue, on the real operands: both overwrite y, and z of gelu_forward.
MatmulPlan plan_epilogue(Device& device, cublasLtHandle_t handle, const MatmulShape& shape, const MatmulArgs& args) {
  MatmulPlan separate;
  separate.separate = true;
  if (!can_fuse(shape)) return separate;
  std::optional<MatmulPlan> fused =
      plan_form(device, handle, shape, args, shape.bias ? BiasForm::epilogue : BiasForm::none);
  if (!fused) return separate;
  if (!shape.deterministic && time_on_gpu(device, [&] { matmul_then_activation(device, args); }) < fused->milliseconds)
    return separate;
  return std::move(*fused);
}

static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(MatmulChoice::algorithm));

}  // namespace

MatmulChoice MatmulPlan::choice() const {
  if (separate) return {.separate = true};
  return {.bias = bias, .algorithm = std::bit_cast<decltype(MatmulChoice::algorithm)>(algorithm)};
}

MatmulShape matmul_shape(const Device& device, const MatmulArgs& args) {
  return {.rows = args.y.shape[0],
          .columns = args.y.shape[1],
          .depth = args.a.shape[args.transpose_a ? 0 : 1],
          .operands = args.a.dtype,
          .result = args.y.dtype,
          .transpose_a = args.transpose_a,
          .transpose_b = args.transpose_b,
          .accumulate = args.accumulate,
          .bias = !args.bias.empty(),
          .scaled = args.scale != 1.0f,
          .deterministic = device.deterministic(),
          .epilogue = args.epilogue,
          .a_stride = args.a_stride,
          .y_alignment = alignment_of(args.y.data),
          .a_alignment = alignment_of(args.a.data),
          .b_alignment = alignment_of(args.b.data),
          .bias_alignment = args.bias.empty() ? 0 : alignment_of(args.bias.data),
          .pre_activation_alignment = is_gelu(args.epilogue) ? alignment_of(args.pre_activation.data) : 0};
}

cublasStatus_t launch_matmul(cublasLtHandle_t handle, const MatmulPlan& plan, const cublasLtMatmulAlgo_t& algorithm,
                             const MatmulArgs& args, void* y, const void* bias, void* workspace,
                             std::size_t workspace_bytes, CUstream_st* stream) {
  set_pointers(plan, args, bias);
  const float beta = plan.reads_y ? 1.0f : 0.0f;
  return cublasLtMatmul(handle, plan.operation.get(), &args.scale, args.b.data, plan.b.get(), args.a.data, plan.a.get(),
                        &beta, y, plan.y.get(), y, plan.y.get(), &algorithm, workspace, workspace_bytes, stream);
}

MatmulPlan plan_matmul(Device& device, cublasLtHandle_t handle, const MatmulShape& shape, const MatmulArgs& args) {
  if (shape.epilogue != Epilogue::none) return plan_epilogue(device, handle, shape, args);
  constexpr std::array kWithBias = {BiasForm::epilogue, BiasForm::before};
  constexpr std::array kWithout = {BiasForm::none};
  const std::span<const BiasForm> forms = shape.bias ? std::span<const BiasForm>(kWithBias) : kWithout;
  for (const BiasForm form : forms)
    if (std::optional<MatmulPlan> plan = plan_form(device, handle, shape, args, form)) return std::move(*plan);
  throw Error("matmul: cuBLASLt has no algorithm for y " + to_string(args.y.shape) + " " +
              std::string(name_of(shape.result)) + ", a " + to_string(args.a.shape) + ", b " + to_string(args.b.shape) +
              " " + std::string(name_of(shape.operands)));
}

std::optional<MatmulPlan> plan_chosen(Device& device, cublasLtHandle_t handle, const MatmulShape& shape,
                                      const MatmulArgs& args, const MatmulChoice& choice) {
  const bool epilogue = shape.epilogue != Epilogue::none;
  if (choice.separate) {
    MatmulPlan plan;
    plan.separate = true;
    return epilogue ? std::optional(std::move(plan)) : std::nullopt;
  }
  if (shape.bias != (choice.bias != BiasForm::none)) return std::nullopt;
  if (epilogue && (!can_fuse(shape) || choice.bias == BiasForm::before)) return std::nullopt;
  MatmulPlan plan = describe(shape, choice.bias);
  plan.algorithm = std::bit_cast<cublasLtMatmulAlgo_t>(choice.algorithm);
  set_pointers(plan, args, bias_place(plan, args, device.scratch(Scratch::kernel, plan.bias_bytes(args))));
  cublasLtMatmulHeuristicResult_t result{};
  const cublasStatus_t status = cublasLtMatmulAlgoCheck(handle, plan.operation.get(), plan.b.get(), plan.a.get(),
                                                        plan.y.get(), plan.y.get(), &plan.algorithm, &result);
  if (status != CUBLAS_STATUS_SUCCESS || result.workspaceSize > kMostWorkspace) return std::nullopt;
  plan.workspace = result.workspaceSize;
  return plan;
}

}  // namespace filigree::cuda
