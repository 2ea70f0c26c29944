// Descriptors and the search for an algorithm.
//
// cuBLASLt thinks in columns: a row-major (R, C) matrix is its column-major (C, R). So y (M, N) = op(a) op(b) is asked
// for as yᵀ (N, M) = op(b)ᵀ op(a)ᵀ: its A is b, its B is a, each with the same transposition, and the bias, one entry a
// row of yᵀ, is one a column of y.
#include "kernels/matmul/matmul_cublaslt_plan.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <span>

namespace filigree::cuda {
namespace {

constexpr int kCandidates = 16;
constexpr std::size_t kMostWorkspace = std::size_t{64} << 20;
constexpr auto kSearchTime = std::chrono::milliseconds(40);  // no further candidate begins after it

using Preference = std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, Destroyer<cublasLtMatmulPreferenceDestroy>>;

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

void set(const Preference& preference, cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
  check(cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof(value)));
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
  if (bias == BiasForm::epilogue) set(plan.operation, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
  plan.y = layout(shape.result, shape.rows, shape.columns);
  plan.a = shape.transpose_a ? layout(shape.operands, shape.depth, shape.rows, shape.a_stride)
                             : layout(shape.operands, shape.rows, shape.depth, shape.a_stride);
  plan.b = shape.transpose_b ? layout(shape.operands, shape.columns, shape.depth)
                             : layout(shape.operands, shape.depth, shape.columns);
  return plan;
}

struct Candidates {
  std::array<cublasLtMatmulHeuristicResult_t, kCandidates> results{};
  int count = 0;

  std::span<const cublasLtMatmulHeuristicResult_t> all() const {
    return {results.data(), static_cast<std::size_t>(count)};
  }
};

// cuBLASLt's algorithms for a plan, best first by its own estimate; none when it knows none. Sums over K that are split
// are added up from the workspace, in a fixed order, and in fp32: with a bf16 result the scheme that keeps the parts in
// the result's type is left out.
Candidates candidates(cublasLtHandle_t handle, const MatmulPlan& plan, const MatmulShape& shape) {
  cublasLtMatmulPreference_t made = nullptr;
  check(cublasLtMatmulPreferenceCreate(&made));
  const Preference preference(made);
  std::uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  if (shape.result == DType::f32) schemes |= CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{kMostWorkspace});
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, schemes);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, shape.b_alignment);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, shape.a_alignment);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, shape.y_alignment);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, shape.y_alignment);
  Candidates found;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle, plan.operation.get(), plan.b.get(), plan.a.get(), plan.y.get(),
                                     plan.y.get(), preference.get(), kCandidates, found.results.data(), &found.count);
  if (status != CUBLAS_STATUS_SUCCESS) found.count = 0;
  return found;
}

// An algorithm without such a setting does not split.
bool splits_depth(const cublasLtMatmulAlgo_t& algorithm) {
  std::uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_NONE;
  std::size_t written = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoConfigGetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME,
                                                                     &scheme, sizeof(scheme), &written);
  return status == CUBLAS_STATUS_SUCCESS && scheme != CUBLASLT_REDUCTION_SCHEME_NONE;
}

class Stopwatch {
 public:
  explicit Stopwatch(CUstream_st* stream) : stream_(stream) {
    check(cudaEventCreate(&start_));
    check(cudaEventCreate(&stop_));
  }
  ~Stopwatch() {
    cudaEventDestroy(start_);
    cudaEventDestroy(stop_);
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  // Milliseconds of one run, on the GPU, out of `count` runs.
  template <typename Body>
  float time(int count, const Body& body) const {
    check(cudaEventRecord(start_, stream_));
    for (int i = 0; i < count; ++i) body();
    check(cudaEventRecord(stop_, stream_));
    check(cudaEventSynchronize(stop_));
    float elapsed = 0.0f;
    check(cudaEventElapsedTime(&elapsed, start_, stop_));
    return elapsed / static_cast<float>(count);
  }

 private:
  CUstream_st* stream_;
  cudaEvent_t start_ = nullptr, stop_ = nullptr;
};

// The least of some measurements: one of a long product, whose time varies little, three of a batch of short ones.
template <typename Body>
float best_time(const Stopwatch& stopwatch, const Body& run) {
  constexpr float kLong = 1.0f, kBatch = 0.2f, kShortest = 1e-3f;  // ms
  float best = stopwatch.time(1, run);
  if (best > kLong) return best;
  const int count = std::clamp(static_cast<int>(kBatch / std::max(best, kShortest)), 1, 20);
  for (int repeat = 0; repeat < 3; ++repeat) best = std::min(best, stopwatch.time(count, run));
  return best;
}

bool usable(const cublasLtMatmulHeuristicResult_t& candidate) {
  return candidate.state == CUBLAS_STATUS_SUCCESS && candidate.workspaceSize <= kMostWorkspace;
}

void take(MatmulPlan& plan, const cublasLtMatmulHeuristicResult_t& candidate) {
  plan.algorithm = candidate.algo;
  plan.workspace = candidate.workspaceSize;
}

// Takes the fastest of `found` into the plan; false when none of them runs. Times on the real operands, into `y`.
bool choose_by_time(Device& device, cublasLtHandle_t handle, MatmulPlan& plan, const Candidates& found,
                    const MatmulArgs& args, void* y, const void* bias, void* workspace) {
  constexpr float kNone = std::numeric_limits<float>::infinity();
  const Stopwatch stopwatch(device.stream());
  float best = kNone;
  const auto begin = std::chrono::steady_clock::now();
  for (const auto& candidate : found.all()) {
    if (best < kNone && std::chrono::steady_clock::now() - begin > kSearchTime) break;
    const auto run = [&] {
      return launch_matmul(handle, plan, candidate.algo, args, y, bias, workspace, candidate.workspaceSize,
                           device.stream());
    };
    if (!usable(candidate) || run() != CUBLAS_STATUS_SUCCESS) continue;  // the first run also loads the kernel
    device.synchronize();
    const float time = best_time(stopwatch, run);
    if (time >= best) continue;
    best = time;
    take(plan, candidate);
  }
  return best < kNone;
}

// The first that does not split the sum over K; where all do, the first: its parts are added in a fixed order too.
bool choose_by_rule(MatmulPlan& plan, const Candidates& found) {
  const auto whole = [](const auto& candidate) { return usable(candidate) && !splits_depth(candidate.algo); };
  const auto all = found.all();
  auto chosen = std::find_if(all.begin(), all.end(), whole);
  if (chosen == all.end()) chosen = std::find_if(all.begin(), all.end(), usable);
  if (chosen == all.end()) return false;
  take(plan, *chosen);
  return true;
}

// A product that adds to y is timed on a spare y, because its own may be added to only once.
bool choose(Device& device, cublasLtHandle_t handle, MatmulPlan& plan, const Candidates& found, const MatmulArgs& args,
            const void* bias, void* workspace) {
  Buffer spare;
  if (plan.reads_y && !device.deterministic()) {
    const auto bytes = static_cast<std::int64_t>(args.y.bytes());
    if (free_bytes() > bytes) spare = device.memory().allocate(Purpose::workspace, args.y.bytes());
  }
  if (device.deterministic() || (plan.reads_y && spare.empty())) return choose_by_rule(plan, found);
  void* y = plan.reads_y ? spare.data() : args.y.data;
  return choose_by_time(device, handle, plan, found, args, y, bias, workspace);
}

}  // namespace

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
          .a_stride = args.a_stride,
          .y_alignment = alignment_of(args.y.data),
          .a_alignment = alignment_of(args.a.data),
          .b_alignment = alignment_of(args.b.data),
          .bias_alignment = args.bias.empty() ? 0 : alignment_of(args.bias.data)};
}

cublasStatus_t launch_matmul(cublasLtHandle_t handle, const MatmulPlan& plan, const cublasLtMatmulAlgo_t& algorithm,
                             const MatmulArgs& args, void* y, const void* bias, void* workspace,
                             std::size_t workspace_bytes, CUstream_st* stream) {
  // cuBLASLt adds the bias after scaling, as matmul.h does.
  if (plan.bias == BiasForm::epilogue) set(plan.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  const float beta = plan.reads_y ? 1.0f : 0.0f;
  return cublasLtMatmul(handle, plan.operation.get(), &args.scale, args.b.data, plan.b.get(), args.a.data, plan.a.get(),
                        &beta, y, plan.y.get(), y, plan.y.get(), &algorithm, workspace, workspace_bytes, stream);
}

MatmulPlan plan_matmul(Device& device, cublasLtHandle_t handle, const MatmulShape& shape, const MatmulArgs& args) {
  constexpr std::array kWithBias = {BiasForm::epilogue, BiasForm::before};
  constexpr std::array kWithout = {BiasForm::none};
  const std::span<const BiasForm> forms = shape.bias ? std::span<const BiasForm>(kWithBias) : kWithout;
  for (const BiasForm form : forms) {
    MatmulPlan plan = describe(shape, form);
    // The bias's values do not matter to a timing, its address does to the choice: it stands where it will be read.
    const std::size_t bias_bytes = plan.bias_bytes(args);
    auto* scratch = static_cast<std::byte*>(device.scratch(Scratch::kernel, bias_bytes + kMostWorkspace));
    const void* bias = bias_bytes != 0 ? scratch : args.bias.data;
    if (form == BiasForm::epilogue) set(plan.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    const Candidates found = candidates(handle, plan, shape);
    if (choose(device, handle, plan, found, args, bias, scratch + bias_bytes)) return plan;
  }
  throw Error("matmul: cuBLASLt has no algorithm for y " + to_string(args.y.shape) + " " +
              std::string(name_of(shape.result)) + ", a " + to_string(args.a.shape) + ", b " + to_string(args.b.shape) +
              " " + std::string(name_of(shape.operands)));
}

}  // namespace filigree::cuda
