#include "core/cuda_runtime.h"
#include "core/error.h"

namespace filigree::cuda {
namespace {

[[noreturn]] void absent() {
  throw Error(unusable());
}

}  // namespace

std::string unusable() {
  return "this build has no CUDA (cmake --preset cuda, which needs nvcc)";
}

void use_gpu(int) {
  absent();
}

GpuProperties properties() {
  absent();
}

CUstream_st* create_stream() {
  absent();
}

void destroy_stream(CUstream_st*) noexcept {}

void synchronize(CUstream_st*) {
  absent();
}

CUevent_st* create_event() {
  absent();
}

void destroy_event(CUevent_st*) noexcept {}

void record(CUevent_st*, CUstream_st*) {
  absent();
}

void wait(CUstream_st*, CUevent_st*) {
  absent();
}

void synchronize(CUevent_st*) {
  absent();
}

void begin_recording(CUstream_st*) {
  absent();
}

CUgraphExec_st* end_recording(CUstream_st*) {
  absent();
}

void discard_recording(CUstream_st*) noexcept {}

void launch(CUgraphExec_st*, CUstream_st*) {
  absent();
}

void destroy_graph(CUgraphExec_st*) noexcept {}

void* allocate_zeroed(std::size_t) {
  absent();
}

void release(void*) noexcept {}

std::int64_t free_bytes() {
  absent();
}

void* allocate_host(std::size_t) {
  absent();
}

void release_host(void*) noexcept {}

void copy(void*, const void*, std::size_t, Copy, CUstream_st*) {
  absent();
}

}  // namespace filigree::cuda
