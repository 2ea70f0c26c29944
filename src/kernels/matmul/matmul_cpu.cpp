#include "kernels/elementwise/elementwise.h"
#include "kernels/matmul/matmul.h"
#include "kernels/matmul/matmul_amx.h"
#include "kernels/matmul/matmul_few_rows.h"
#include "kernels/matmul/matmul_onednn.h"

namespace filigree {
namespace {

// The empty sum: y = bias [+ y].
void without_depth(Device& device, const MatmulArgs& args) {
  if (!args.accumulate) fill(device, args.y, 0.0f);
  if (args.bias.empty()) return;
  for (std::int64_t row = 0; row < args.y.shape[0]; ++row) add(device, args.y.slice(row, 1), args.bias);
}

void check(const MatmulArgs& args, std::int64_t rows, std::int64_t columns, std::int64_t depth) {
  const bool fits = args.a.shape == (args.transpose_a ? Shape{depth, rows} : Shape{rows, depth}) &&
                    args.b.shape == (args.transpose_b ? Shape{columns, depth} : Shape{depth, columns}) &&
                    (args.bias.empty() || args.bias.count() == columns);
  if (!fits)
    throw Error("matmul: y " + to_string(args.y.shape) + ", a " + to_string(args.a.shape) +
                (args.transpose_a ? " transposed" : "") + ", b " + to_string(args.b.shape) +
                (args.transpose_b ? " transposed" : "") + " and bias " + to_string(args.bias.shape) +
                " do not fit each other");
  require(args.a.dtype == args.b.dtype, "matmul: operands of two types");
  require(args.bias.empty() || args.bias.dtype == DType::f32, "matmul: the bias is fp32");
  require(args.y.dtype == DType::f32 || args.a.dtype == DType::bf16, "matmul: a bf16 result needs bf16 operands");
  require(args.bias.empty() || args.bias.dtype == DType::f32, "matmul: the bias is fp32");
}

void check_epilogue(const MatmulArgs& args) {
  const Tensor& z = args.pre_activation;
  require(!args.accumulate, "matmul: an epilogue does not accumulate");
  require(args.epilogue != Epilogue::gelu_backward || args.bias.empty(), "matmul: gelu_backward has no bias");
  if (args.epilogue == Epilogue::relu_forward) return;
  require(z.shape == args.y.shape && z.dtype == args.y.dtype && (z.data != args.y.data || z.count() == 0),
          "matmul: the pre-activation is an array of its own, like y in shape and type");
}

}  // namespace

void matmul(Device& device, const MatmulArgs& args) {
  require(args.y.shape.rank() == 2 && args.a.shape.rank() == 2 && args.b.shape.rank() == 2,
          "matmul: operands are matrices");
  const std::int64_t rows = args.y.shape[0], columns = args.y.shape[1];
  const std::int64_t depth = args.a.shape[args.transpose_a ? 0 : 1];
  check(args, rows, columns, depth);
  if (args.epilogue != Epilogue::none) check_epilogue(args);
  if (args.y.count() == 0) return;
  if (args.epilogue != Epilogue::none && (depth == 0 || !device.is_cuda())) return matmul_then_activation(device, args);
  if (depth == 0) return without_depth(device, args);
  if constexpr (kBuiltWithCuda)
    if (device.is_cuda()) return cuda::matmul(device, args);
  require(args.a_stride == 0, "matmul: a strided operand is for a GPU");
  if (takes_matmul_few_rows(args)) return matmul_few_rows(device, args);
  if (takes_matmul_amx(args)) return matmul_amx(device, args);
  if (args.a.dtype == DType::bf16 && !onednn_has_bf16()) return onednn_matmul_widened(device, args);
  onednn_matmul(device, args);
}

}  // namespace filigree
