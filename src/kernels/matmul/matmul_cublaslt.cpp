// cuda::matmul: one plan a shape, kept in the Device.
#include <map>

#include "kernels/elementwise/elementwise.h"
#include "kernels/matmul/matmul_bias_cuda.h"
#include "kernels/matmul/matmul_cublaslt_plan.h"

namespace filigree::cuda {
namespace {

class CublasLt : public LibraryState {
 public:
  CublasLt() {
    cublasLtHandle_t handle = nullptr;
    check(cublasLtCreate(&handle));
    handle_.reset(handle);
  }
  cublasLtHandle_t handle() const { return handle_.get(); }

  const MatmulPlan& plan(Device& device, const MatmulArgs& args) {
    const MatmulShape shape = matmul_shape(device, args);
    auto known = plans_.find(shape);
    // Planning an epilogue may plan its plain product on the way: a map's entries stay where they are.
    if (known == plans_.end()) known = plans_.emplace(shape, plan_matmul(device, handle(), shape, args)).first;
    return known->second;
  }

 private:
  CublasLtHandle handle_;
  std::map<MatmulShape, MatmulPlan> plans_;
};

CublasLt& library_of(Device& device) {
  return device.library<CublasLt>(Library::cublaslt, [] { return std::make_unique<CublasLt>(); });
}

}  // namespace

void matmul(Device& device, const MatmulArgs& args) {
  CublasLt& library = library_of(device);
  const MatmulPlan& plan = library.plan(device, args);
  if (plan.separate) return matmul_then_gelu(device, args);
  const std::size_t bias_bytes = plan.bias_bytes(args);
  auto* scratch = static_cast<std::byte*>(device.scratch(Scratch::kernel, bias_bytes + plan.workspace));
  const void* bias = args.bias.data;
  if (bias_bytes != 0) {
    filigree::convert(device, Tensor{scratch, args.y.dtype, args.bias.shape}, args.bias);
    bias = scratch;
  }
  if (plan.bias == BiasForm::before) write_bias(device, args.y, args.bias, args.accumulate);
  check(launch_matmul(library.handle(), plan, plan.algorithm, args, args.y.data, bias, scratch + bias_bytes,
                      plan.workspace, device.stream()));
}

bool matmul_fuses(Device& device, const MatmulArgs& args) {
  return args.epilogue != Epilogue::none && !library_of(device).plan(device, args).separate;
}

}  // namespace filigree::cuda
