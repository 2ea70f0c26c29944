// Where a run computes. Every kernel takes the Device first; it carries the memory counters, the thread count and the
// library handles (plans, primitive caches) that must be built once and kept.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "core/memory.h"

namespace filigree {

// State that a vendor library keeps per device (for example oneDNN's engine and primitive cache). Each library derives
// its own class next to its narrow header and stores it here on first use.
class LibraryState {
 public:
  virtual ~LibraryState() = default;
};

enum class Library : std::uint8_t { onednn };
inline constexpr int kLibraryCount = 1;

// Scratch memory shared by everything that runs on a device. A slot's contents are valid until the next call that asks
// for the same slot: kernels use `kernel`, a linear layer that prepares an operand for a kernel uses `layer`, whoever
// calls layers in a loop (the chunked loss) uses `caller`. A slot grows when more is asked than before, so nothing is
// allocated once each shape has been seen.
enum class Scratch : std::uint8_t { kernel, layer, caller };
inline constexpr int kScratchCount = 3;

class Device {
 public:
  // threads = 0 takes OpenMP's default (OMP_NUM_THREADS or the processors that this process may use).
  static std::unique_ptr<Device> cpu(int threads = 0);
  // Computes nothing and holds nothing: for laying a model out to learn its memory (see Memory).
  static std::unique_ptr<Device> plan();

  Memory& memory() { return memory_; }
  const Memory& memory() const { return memory_; }
  int threads() const { return threads_; }
  // The processor's name and the vector instructions that the engine uses on it, e.g. "AMD EPYC ... (avx512, bf16)".
  const std::string& description() const { return description_; }

  // At least `bytes` bytes, 64-byte aligned, contents undefined.
  void* scratch(Scratch slot, std::size_t bytes);

  // The library's state, made by `make` on first use.
  template <typename State, typename Make>
  State& library(Library which, Make&& make) {
    auto& slot = libraries_[static_cast<std::size_t>(which)];
    if (!slot) slot = make();
    return static_cast<State&>(*slot);
  }

 private:
  explicit Device(Memory::Kind kind) : memory_(kind) {}

  Memory memory_;
  std::array<Buffer, kScratchCount> scratch_;
  std::array<std::unique_ptr<LibraryState>, kLibraryCount> libraries_;
  int threads_ = 1;
  std::string description_;
};

// What this processor can do, read once from cpuid.
struct CpuFeatures {
  bool avx2 = false;          // with FMA
  bool avx512 = false;        // F, BW, DQ, VL
  bool avx512_vbmi2 = false;  // byte and word expand / compress
  bool avx512_bf16 = false;
  bool amx_bf16 = false;
};
const CpuFeatures& cpu_features();

}  // namespace filigree
