#include "core/cuda_runtime.h"

#include "core/cuda_error.h"

namespace filigree::cuda {

std::string unusable() {
  int count = 0;
  if (const cudaError_t status = cudaGetDeviceCount(&count); status != cudaSuccess) {
    cudaGetLastError();
    return std::string("no usable GPU (") + cudaGetErrorString(status) + ")";
  }
  if (count == 0) return "no GPU";
  int major = 0, minor = 0;
  if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) != cudaSuccess ||
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0) != cudaSuccess) {
    cudaGetLastError();
    return "the GPU does not answer";
  }
  // A kernel of this build that the GPU cannot run would fail at its first launch, in the middle of a run.
  constexpr int kOldest = FILIGREE_CUDA_OLDEST;
  if (10 * major + minor < kOldest)
    return "the GPU has compute capability " + std::to_string(major) + "." + std::to_string(minor) +
           ", this build needs " + std::to_string(kOldest / 10) + "." + std::to_string(kOldest % 10) +
           " or newer (FILIGREE_CUDA_ARCHITECTURES)";
  return {};
}

void use_gpu(int index) {
  int count = 0;
  check(cudaGetDeviceCount(&count));
  check(cudaSetDevice(index % count));
}

GpuProperties properties() {
  cudaDeviceProp found{};
  int gpu = 0;
  check(cudaGetDevice(&gpu));
  check(cudaGetDeviceProperties(&found, gpu));
  GpuProperties result{.name = found.name,
                       .capability = 10 * found.major + found.minor,
                       .multiprocessors = found.multiProcessorCount,
                       .bytes = static_cast<std::int64_t>(found.totalGlobalMem)};
  check(cudaDriverGetVersion(&result.driver));
  check(cudaRuntimeGetVersion(&result.runtime));
  return result;
}

CUstream_st* create_stream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreate(&stream));
  return stream;
}

void destroy_stream(CUstream_st* stream) noexcept {
  cudaStreamDestroy(stream);
}

void synchronize(CUstream_st* stream) {
  check(cudaStreamSynchronize(stream));
}

CUevent_st* create_event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return event;
}

void destroy_event(CUevent_st* event) noexcept {
  cudaEventDestroy(event);
}

void record(CUevent_st* event, CUstream_st* stream) {
  check(cudaEventRecord(event, stream));
}

void wait(CUstream_st* stream, CUevent_st* event) {
  check(cudaStreamWaitEvent(stream, event));
}

void synchronize(CUevent_st* event) {
  check(cudaEventSynchronize(event));
}

void begin_recording(CUstream_st* stream) {
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
}

CUgraphExec_st* end_recording(CUstream_st* stream) {
  cudaGraph_t recorded = nullptr;
  check(cudaStreamEndCapture(stream, &recorded));
  cudaGraphExec_t graph = nullptr;
  const cudaError_t status = cudaGraphInstantiate(&graph, recorded, 0);
  cudaGraphDestroy(recorded);
  check(status);
  return graph;
}

void discard_recording(CUstream_st* stream) noexcept {
  cudaGraph_t recorded = nullptr;
  cudaStreamEndCapture(stream, &recorded);
  if (recorded) cudaGraphDestroy(recorded);
  cudaGetLastError();  // that the recording was spoilt is known
}

void launch(CUgraphExec_st* graph, CUstream_st* stream) {
  check(cudaGraphLaunch(graph, stream));
}

void destroy_graph(CUgraphExec_st* graph) noexcept {
  cudaGraphExecDestroy(graph);
}

void* allocate_zeroed(std::size_t bytes) {
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, bytes);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  check(status);
  // Not in the default stream, which another thread (a virtual rank) must not use while this one records a graph, nor
  // this one while another does.
  check(cudaMemsetAsync(data, 0, bytes, cudaStreamPerThread));
  check(cudaStreamSynchronize(cudaStreamPerThread));
  return data;
}

void release(void* data) noexcept {
  cudaFree(data);
}

std::int64_t free_bytes() {
  std::size_t available = 0, total = 0;
  check(cudaMemGetInfo(&available, &total));
  return static_cast<std::int64_t>(available);
}

void* allocate_host(std::size_t bytes) {
  void* data = nullptr;
  check(cudaMallocHost(&data, bytes));
  return data;
}

void release_host(void* data) noexcept {
  cudaFreeHost(data);
}

void copy(void* to, const void* from, std::size_t bytes, Copy direction, CUstream_st* stream) {
  if (bytes == 0) return;
  const cudaMemcpyKind kind = direction == Copy::to_device ? cudaMemcpyHostToDevice
                              : direction == Copy::to_host ? cudaMemcpyDeviceToHost
                                                           : cudaMemcpyDeviceToDevice;
  check(cudaMemcpyAsync(to, from, bytes, kind, stream));
}

}  // namespace filigree::cuda
