#include "kernels/nm/nm_cusparselt_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/cuda_error.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/matmul/matmul.h"
#include "kernels/nm/nm_metadata_cuda.h"
#include "kernels/nm/nm_pack.h"

namespace filigree::cuda {
namespace {

constexpr std::uint32_t kAlignment = 16;  // bytes, of every matrix and row
// The library's search chose it at 16 of 17 training shapes (H200, cuSPARSELt 0.8.0, bf16).
constexpr int kUsual = 17, kDefault = 0;

// Milliseconds of a product, from a few after one that warms up; infinite when it fails.
float time_of(Device& device, const CusparseltPlan& plan, const NmMatmulArgs& args) {
  constexpr int kRepeats = 5;
  cudaEvent_t start = nullptr, stop = nullptr;
  check(cudaEventCreate(&start));
  check(cudaEventCreate(&stop));
  bool runs = plan.run(device, args) == CUSPARSE_STATUS_SUCCESS;
  check(cudaEventRecord(start, device.stream()));
  for (int repeat = 0; repeat < kRepeats && runs; ++repeat) runs = plan.run(device, args) == CUSPARSE_STATUS_SUCCESS;
  check(cudaEventRecord(stop, device.stream()));
  check(cudaEventSynchronize(stop));
  float ms = 0.0f;
  check(cudaEventElapsedTime(&ms, start, stop));
  cudaEventDestroy(start);
  cudaEventDestroy(stop);
  if (!runs) cudaGetLastError();  // a refused launch must not be found by the next check
  return runs ? ms / kRepeats : std::numeric_limits<float>::infinity();
}

// Compares products with the dense one of the unpacked weight.
class Verifier {
 public:
  Verifier(Device& device, const NmMatmulArgs& args)
      : device_(device),
        args_(args),
        reference_(device.memory().tensor(Purpose::workspace, DType::bf16, args.y.shape)) {
    const Shape shape{args.weight.rows, args.weight.columns};
    const auto bytes = static_cast<std::size_t>(shape.count()) * sizeof(bf16);
    const Tensor dense{device.scratch(Scratch::layer, bytes), DType::bf16, shape};
    filigree::nm_expand(device, dense, args.weight);
    filigree::matmul(
        device,
        {.y = reference_, .a = args.x, .b = dense, .bias = args.bias, .transpose_b = true, .scale = args.scale});
    const double squares = filigree::sum_of_squares(device, reference_);
    size_ = static_cast<float>(std::sqrt(squares / static_cast<double>(args.y.count())));
  }

  // Right in every element, up to the rounding of both to bf16 (and of the bias): 2^-8 of the element each; and three
  // times the same bits.
  bool accepts(const CusparseltPlan& plan) const {
    std::uint64_t first = 0;
    for (int repeat = 0; repeat < 3; ++repeat) {
      filigree::fill(device_, args_.y, std::numeric_limits<float>::quiet_NaN());  // what is not written shows
      if (plan.run(device_, args_) != CUSPARSE_STATUS_SUCCESS) return false;
      const Difference found = difference(device_, args_.y, reference_, 0x1p-6f, 0x1p-7f * size_);
      if (repeat == 0) first = found.fingerprint;
      if (found.wrong != 0 || found.fingerprint != first) return false;
    }
    return true;
  }

 private:
  Device& device_;
  const NmMatmulArgs& args_;
  OwnedTensor reference_;  // (T, N) bf16
  float size_ = 0.0f;      // root mean square of its elements
};

}  // namespace

CusparseltPlan::CusparseltPlan(Device& device, const CusparseltLibrary& library, const cusparseLtHandle_t& handle,
                               const CusparseltShape& shape, bool bias, int algorithm)
    : library_(library), handle_(handle), algorithm_(algorithm) {
  const std::int64_t outputs = shape.outputs, inputs = shape.inputs, tokens = shape.tokens;
  if (!take(library.structured_descriptor_init(&handle, &weight_, outputs, inputs, inputs, kAlignment, CUDA_R_16BF,
                                               CUSPARSE_ORDER_ROW, CUSPARSELT_SPARSITY_50_PERCENT)))
    return;
  described_ = 1;
  if (!take(library.dense_descriptor_init(&handle, &x_, tokens, inputs, inputs, kAlignment, CUDA_R_16BF,
                                          CUSPARSE_ORDER_ROW)))
    return;
  described_ = 2;
  if (!take(library.dense_descriptor_init(&handle, &y_, outputs, tokens, outputs, kAlignment, CUDA_R_16BF,
                                          CUSPARSE_ORDER_COL)))
    return;
  described_ = 3;
  if (!take(library.matmul_descriptor_init(&handle, &matmul_, CUSPARSE_OPERATION_NON_TRANSPOSE,
                                           CUSPARSE_OPERATION_TRANSPOSE, &weight_, &x_, &y_, &y_,
                                           CUSPARSE_COMPUTE_32F)))
    return;
  if (bias) {
    bias_ = device.memory().tensor(Purpose::workspace, DType::bf16, {outputs});
    void* data = bias_.view().data;
    if (!take(library.matmul_desc_set_attribute(&handle, &matmul_, CUSPARSELT_MATMUL_BIAS_POINTER, &data, sizeof data)))
      return;
  }
  if (!take(library.alg_selection_init(&handle, &selection_, &matmul_, CUSPARSELT_MATMUL_ALG_DEFAULT))) return;
  selected_ = true;
  if (!take(library.alg_get_attribute(&handle, &selection_, CUSPARSELT_MATMUL_ALG_CONFIG_MAX_ID, &algorithms_,
                                      sizeof algorithms_)) ||
      !take(library.alg_set_attribute(&handle, &selection_, CUSPARSELT_MATMUL_ALG_CONFIG_ID, &algorithm_,
                                      sizeof algorithm_)) ||
      !take(library.plan_init(&handle, &plan_, &matmul_, &selection_)))
    return;
  planned_ = true;
  take(library.get_workspace(&handle, &plan_, &workspace_));
}

CusparseltPlan::~CusparseltPlan() {
  if (planned_) library_.plan_destroy(&plan_);
  if (selected_) library_.alg_selection_destroy(&selection_);
  cusparseLtMatDescriptor_t* const matrices[] = {&weight_, &x_, &y_};
  for (int i = 0; i < described_; ++i) library_.mat_descriptor_destroy(matrices[i]);
}

bool CusparseltPlan::take(cusparseStatus_t status) {
  status_ = status;
  return status == CUSPARSE_STATUS_SUCCESS;
}

cusparseStatus_t CusparseltPlan::run(Device& device, const NmMatmulArgs& args) const {
  if (!bias_.empty()) filigree::convert(device, bias_, args.bias);
  void* workspace = workspace_ == 0 ? nullptr : device.scratch(Scratch::kernel, workspace_);
  const float beta = args.accumulate ? 1.0f : 0.0f;
  cudaStream_t stream = device.stream();
  return library_.matmul(&handle_, &plan_, &args.scale, args.weight.values.data, args.x.data, &beta, args.y.data,
                         args.y.data, workspace, &stream, 1);
}

CusparseltShape shape_of(const NmMatmulArgs& args) {
  return {.outputs = args.weight.rows, .inputs = args.weight.columns, .tokens = args.x.shape[0]};
}

std::unique_ptr<CusparseltPlan> find_cusparselt_plan(Device& device, const CusparseltLibrary& library,
                                                     const cusparseLtHandle_t& handle, const NmMatmulArgs& args,
                                                     int algorithm, std::string& refusal) {
  const auto plan_of = [&](int which) {
    return std::make_unique<CusparseltPlan>(device, library, handle, shape_of(args), !args.bias.empty(), which);
  };
  const auto any = plan_of(kDefault);
  if (any->status() != CUSPARSE_STATUS_SUCCESS) {
    refusal = std::string("cuSPARSELt does not take the shape: ") + library.get_error_string(any->status());
    return nullptr;
  }
  std::vector<int> algorithms = {algorithm};
  if (algorithm == kUsualAlgorithm) algorithms = {kUsual, kDefault};
  if (algorithm == kFastestAlgorithm) {
    algorithms.clear();
    for (int which = 0; which < any->algorithms(); ++which) algorithms.push_back(which);
  }
  struct Candidate {
    float ms;
    std::unique_ptr<CusparseltPlan> plan;
  };
  std::vector<Candidate> candidates;
  for (const int which : algorithms) {
    if (which >= any->algorithms()) continue;
    auto plan = plan_of(which);
    if (plan->status() != CUSPARSE_STATUS_SUCCESS) continue;
    const float ms = algorithm == kFastestAlgorithm ? time_of(device, *plan, args) : 0.0f;
    if (std::isfinite(ms)) candidates.push_back({ms, std::move(plan)});
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.ms < b.ms; });
  const Verifier verifier(device, args);
  for (Candidate& candidate : candidates)
    if (verifier.accepts(*candidate.plan)) return std::move(candidate.plan);
  refusal = "no algorithm of cuSPARSELt gives the right product (" + std::to_string(candidates.size()) + " tried)";
  return nullptr;
}

}  // namespace filigree::cuda
