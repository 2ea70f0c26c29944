// Where a run computes: the processor, or one GPU. Every kernel takes the Device first; it carries the memory counters,
// the thread count or stream, and the library handles (plans, primitive caches) that must be built once and kept.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "core/cuda_runtime.h"
#include "core/memory.h"

namespace filigree {

// State that a library keeps per device (for example oneDNN's engine and primitive cache, or the lists that our kernels
// read on a GPU). Each library derives its own class next to its narrow header and stores it here on first use.
class LibraryState {
 public:
  virtual ~LibraryState() = default;
};

enum class Library : std::uint8_t { onednn, cublaslt, cudnn, cusparselt, tables, block };
inline constexpr int kLibraryCount = 6;

// Whether this build can compute on a GPU. Guards calls of CUDA code with `if constexpr`, so that a build without CUDA
// links without it.
#ifdef FILIGREE_CUDA
inline constexpr bool kBuiltWithCuda = true;
#else
inline constexpr bool kBuiltWithCuda = false;
#endif

// Scratch memory shared by everything that runs on a device. A slot's contents are valid until the next call that asks
// for the same slot: kernels use `kernel`, a linear layer that prepares an operand for a kernel uses `layer`, whoever
// calls layers (the chunked loss, the backward pass of a block) uses `caller`. A slot grows when more is asked than
// before, so nothing is allocated once each shape has been seen.
enum class Scratch : std::uint8_t { kernel, layer, caller };
inline constexpr int kScratchCount = 3;

class Device {
 public:
  // threads = 0 takes OpenMP's default (OMP_NUM_THREADS or the processors that this process may use).
  static std::unique_ptr<Device> cpu(int threads = 0);
  // The first GPU that the process sees. Throws UserError with the reason when it cannot be used.
  static std::unique_ptr<Device> cuda();
  // `name` as in run.device: "cpu", "cuda", or "auto", a GPU where one can be used.
  static std::unique_ptr<Device> named(std::string_view name, int threads = 0);
  // Computes nothing and holds nothing: for laying a model out to learn its memory (see Memory), as a processor would
  // hold it or a GPU with all of its libraries.
  static std::unique_ptr<Device> plan(bool as_gpu = false);
  // Would named() take a GPU?
  static bool means_gpu(std::string_view name);

  ~Device();

  bool is_cuda() const { return memory_.kind() == Memory::Kind::gpu; }
  bool plans_gpu() const { return plans_gpu_; }
  // All kernels of a GPU run in this stream, in the order of the calls. Null on the CPU.
  CUstream_st* stream() const { return stream_; }
  // Beside it, for copies that kernels do not wait for by themselves (Upload).
  CUstream_st* copy_stream() const { return copy_stream_; }
  const cuda::GpuProperties& gpu() const { return gpu_; }
  // run.deterministic: libraries choose their algorithms by a fixed rule, among those that give the same bits each
  // time, and nothing is timed.
  void set_deterministic(bool value) { deterministic_ = value; }
  bool deterministic() const { return deterministic_; }
  // No work is queued that writes weights (SettledWeights).
  bool weights_settled() const { return weights_settled_; }
  // Returns when all work so far is done. Kernels return before theirs is, on a GPU.
  void synchronize() const;

  // Between a tensor of this device and host memory, in the order of the stream. The host's memory may be read or
  // written again at return.
  void copy_to_host(void* host, const Tensor& from) const;
  void copy_from_host(const Tensor& to, const void* host) const;
  // Between tensors of this device: same bytes.
  void copy(const Tensor& to, const Tensor& from) const;

  Memory& memory() { return memory_; }
  const Memory& memory() const { return memory_; }
  int threads() const { return threads_; }
  // The processor's name and the vector instructions that the engine uses on it, e.g.
  // "Intel(R) Xeon(R) Processor, 2 threads, AVX-512 BF16"; of a GPU its memory and versions.
  const std::string& description() const { return description_; }

  // At least `bytes` bytes, aligned as a Buffer, contents undefined.
  void* scratch(Scratch slot, std::size_t bytes);
  // How often a slot has grown: while this stays, scratch memory lies where it lay.
  std::int64_t scratch_moves() const { return scratch_moves_; }

  // The library's state, made by `make` on first use.
  template <typename State, typename Make>
  State& library(Library which, Make&& make) {
    auto& slot = libraries_[static_cast<std::size_t>(which)];
    if (!slot) slot = make();
    return static_cast<State&>(*slot);
  }

 private:
  friend class WorkGraph;
  friend class SettledWeights;
  explicit Device(Memory::Kind kind) : memory_(kind) {}
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  Memory memory_;
  std::array<Buffer, kScratchCount> scratch_;
  std::array<std::unique_ptr<LibraryState>, kLibraryCount> libraries_;
  int threads_ = 1;
  bool deterministic_ = false;
  bool recording_ = false;  // by a WorkGraph
  bool plans_gpu_ = false;
  bool weights_settled_ = false;
  std::int64_t scratch_moves_ = 0;
  CUstream_st* stream_ = nullptr;
  CUstream_st* copy_stream_ = nullptr;
  cuda::GpuProperties gpu_;
  std::string description_;
};

// While one lives, whoever made it queues no work that writes weights, and has queued other work since the last that
// did: a GPU's kernels may read weights before the kernel ahead of them is done.
class SettledWeights {
 public:
  explicit SettledWeights(Device& device) : device_(device), before_(device.weights_settled_) {
    device.weights_settled_ = true;
  }
  ~SettledWeights() { device_.weights_settled_ = before_; }
  SettledWeights(const SettledWeights&) = delete;
  SettledWeights& operator=(const SettledWeights&) = delete;

 private:
  Device& device_;
  bool before_;
};

// What this processor can do, read once from cpuid.
struct CpuFeatures {
  bool avx2 = false;          // with FMA
  bool avx512 = false;        // F, BW, DQ, VL
  bool avx512_vbmi2 = false;  // byte and word expand / compress
  bool avx512_bf16 = false;
  bool avx512_fp16 = false;
  bool amx_bf16 = false;
};
const CpuFeatures& cpu_features();

}  // namespace filigree
