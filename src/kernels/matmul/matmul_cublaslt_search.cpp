// The search for an algorithm.
#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <span>

#include "kernels/matmul/matmul_cublaslt_plan.h"

namespace filigree::cuda {
namespace {

constexpr int kCandidates = 16;
constexpr auto kSearchTime = std::chrono::milliseconds(40);  // no further candidate begins after it

using Preference = std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, Destroyer<cublasLtMatmulPreferenceDestroy>>;

void set(const Preference& preference, cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
  check(cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof(value)));
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
  plan.milliseconds = best;
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

}  // namespace

float time_on_gpu(Device& device, const std::function<void()>& work) {
  const Stopwatch stopwatch(device.stream());
  work();
  device.synchronize();
  return best_time(stopwatch, work);
}

bool find_algorithm(Device& device, cublasLtHandle_t handle, const MatmulShape& shape, const MatmulArgs& args,
                    const void* bias, void* workspace, MatmulPlan& plan) {
  const Candidates found = candidates(handle, plan, shape);
  // A product that adds to y is timed on a spare y, because its own may be added to only once.
  Buffer spare;
  if (plan.reads_y && !device.deterministic()) {
    const auto bytes = static_cast<std::int64_t>(args.y.bytes());
    if (free_bytes() > bytes) spare = device.memory().allocate(Purpose::workspace, args.y.bytes());
  }
  if (device.deterministic() || (plan.reads_y && spare.empty())) return choose_by_rule(plan, found);
  void* y = plan.reads_y ? spare.data() : args.y.data;
  return choose_by_time(device, handle, plan, found, args, y, bias, workspace);
}

}  // namespace filigree::cuda
