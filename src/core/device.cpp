#include "core/device.h"

#include <omp.h>

#include <fstream>

namespace filigree {

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = [] {
    __builtin_cpu_init();
    CpuFeatures found;
    found.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    found.avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                   __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    found.avx512_vbmi2 = found.avx512 && __builtin_cpu_supports("avx512vbmi2");
    found.avx512_bf16 = found.avx512 && __builtin_cpu_supports("avx512bf16");
    // g++ 12 has no name for AMX in __builtin_cpu_supports; the kernel's list also says that the state may be used.
    std::ifstream info("/proc/cpuinfo");
    for (std::string line; std::getline(info, line);)
      if (line.starts_with("flags")) {
        found.amx_bf16 = line.find(" amx_bf16") != std::string::npos;
        break;
      }
    return found;
  }();
  return features;
}

void* Device::scratch(Scratch slot, std::size_t bytes) {
  Buffer& buffer = scratch_[static_cast<std::size_t>(slot)];
  if (buffer.bytes() < bytes) {
    buffer = Buffer();  // give back before asking: the peak counts one of them
    buffer = memory_.allocate(Purpose::workspace, bytes);
  }
  return buffer.data();
}

std::unique_ptr<Device> Device::plan() {
  return std::unique_ptr<Device>(new Device(Memory::Kind::plan));
}

std::unique_ptr<Device> Device::cpu(int threads) {
  std::unique_ptr<Device> device(new Device(Memory::Kind::real));
  if (threads > 0) omp_set_num_threads(threads);
  device->threads_ = omp_get_max_threads();
  std::string model = "CPU";
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name")) {
      model = line.substr(line.find(':') + 2);
      break;
    }
  const CpuFeatures& features = cpu_features();
  const char* vectors = features.avx512 ? "AVX-512" : features.avx2 ? "AVX2" : "SSE2";
  device->description_ = model + ", " + std::to_string(device->threads_) + " threads, " + vectors +
                         (features.avx512_bf16 ? " BF16" : "") + (features.amx_bf16 ? ", AMX" : "");
  return device;
}

}  // namespace filigree
