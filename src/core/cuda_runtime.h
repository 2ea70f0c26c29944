// The few CUDA calls that core needs, so that nothing else in it knows CUDA. Implemented in cuda_runtime.cpp, or, in a
// build without CUDA, in cuda_absent.cpp, where every call but unusable() throws.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

struct CUstream_st;     // cudaStream_t is a pointer to it
struct CUevent_st;      // cudaEvent_t
struct CUgraphExec_st;  // cudaGraphExec_t

namespace filigree::cuda {

// Why no GPU can be used here: no GPU, no driver, one that is too old for this build. Empty when there is one. Never
// throws.
std::string unusable();

// The calling thread's GPU from now on: number `index`, modulo their count.
void use_gpu(int index);

struct GpuProperties {
  std::string name;         // e.g. "NVIDIA H200"
  int capability = 0;       // 90 for compute capability 9.0
  int multiprocessors = 0;  // on the chip
  std::int64_t bytes = 0;   // of memory
  int driver = 0;           // newest CUDA version that the driver serves, e.g. 13000
  int runtime = 0;          // CUDA version of this build
};
GpuProperties properties();  // of the thread's GPU

// A stream that waits for, and is waited for by, the default stream: allocations, which zero their memory there, need
// no event.
CUstream_st* create_stream();
void destroy_stream(CUstream_st* stream) noexcept;
// Throws Error when any work of the stream has failed.
void synchronize(CUstream_st* stream);

// A point in a stream's work, for another stream or the host to wait for. One that was never recorded is past.
CUevent_st* create_event();
void destroy_event(CUevent_st* event) noexcept;
void record(CUevent_st* event, CUstream_st* stream);
// What is queued in `stream` from now on begins after the event.
void wait(CUstream_st* stream, CUevent_st* event);
void synchronize(CUevent_st* event);

// From begin to end what is queued in the stream is recorded and not done. The calling thread may then neither wait nor
// allocate: the calls that would throw, and the recording is spoilt.
void begin_recording(CUstream_st* stream);
CUgraphExec_st* end_recording(CUstream_st* stream);
void discard_recording(CUstream_st* stream) noexcept;
void launch(CUgraphExec_st* graph, CUstream_st* stream);
void destroy_graph(CUgraphExec_st* graph) noexcept;

// Device memory, zeroed; null when there is not enough.
void* allocate_zeroed(std::size_t bytes);
void release(void* data) noexcept;
std::int64_t free_bytes();

// Page-locked host memory, which copies reach at full speed and without a detour.
void* allocate_host(std::size_t bytes);
void release_host(void* data) noexcept;

// Copies in the stream's order. With pageable host memory the call returns when the host's side may be used again; with
// page-locked memory when the stream has been synchronized.
enum class Copy : std::uint8_t { to_device, to_host, on_device };
void copy(void* to, const void* from, std::size_t bytes, Copy direction, CUstream_st* stream);

}  // namespace filigree::cuda
