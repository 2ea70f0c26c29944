#include "core/device.h"

#include <omp.h>

#include <cstring>
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
    found.avx512_fp16 = found.avx512 && __builtin_cpu_supports("avx512fp16");
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
    require(!recording_, "scratch memory grows within recorded work");
    ++scratch_moves_;
    buffer = Buffer();  // give back before asking: the peak counts one of them
    buffer = memory_.allocate(Purpose::workspace, bytes);
  }
  return buffer.data();
}

std::unique_ptr<Device> Device::plan(bool as_gpu) {
  std::unique_ptr<Device> device(new Device(Memory::Kind::plan));
  device->plans_gpu_ = as_gpu;
  device->description_ = as_gpu ? "planned: a GPU with cuSPARSELt" : "planned: a processor";
  return device;
}

bool Device::means_gpu(std::string_view name) {
  return name == "cuda" || (name == "auto" && cuda::unusable().empty());
}

std::unique_ptr<Device> Device::cpu(int threads) {
  std::unique_ptr<Device> device(new Device(Memory::Kind::host));
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

std::unique_ptr<Device> Device::cuda() {
  if (const std::string reason = cuda::unusable(); !reason.empty())
    throw UserError("run.device = \"cuda\": " + reason + "; run.device = \"cpu\" computes on the processor");
  std::unique_ptr<Device> device(new Device(Memory::Kind::gpu));
  device->threads_ = omp_get_max_threads();
  device->stream_ = cuda::create_stream();
  device->copy_stream_ = cuda::create_stream();
  device->gpu_ = cuda::properties();
  const cuda::GpuProperties& gpu = device->gpu_;
  device->description_ = gpu.name + ", " + std::to_string(gpu.bytes >> 20) + " MiB, compute capability " +
                         std::to_string(gpu.capability / 10) + "." + std::to_string(gpu.capability % 10) + ", CUDA " +
                         std::to_string(gpu.runtime / 1000) + "." + std::to_string(gpu.runtime % 1000 / 10);
  return device;
}

std::unique_ptr<Device> Device::named(std::string_view name, int threads) {
  if (means_gpu(name)) return cuda();
  require(name == "cpu" || name == "auto", "no device is called so");
  return cpu(threads);
}

Device::~Device() {
  for (auto& library : libraries_) library.reset();  // before the stream that their handles may know
  if (copy_stream_) cuda::destroy_stream(copy_stream_);
  if (stream_) cuda::destroy_stream(stream_);
}

void Device::synchronize() const {
  require(!recording_, "the host waits for the GPU within recorded work");
  if (is_cuda()) cuda::synchronize(stream_);
}

void Device::copy_to_host(void* host, const Tensor& from) const {
  if (!is_cuda()) {
    std::memcpy(host, from.data, from.bytes());
    return;
  }
  cuda::copy(host, from.data, from.bytes(), cuda::Copy::to_host, stream_);
  synchronize();
}

void Device::copy_from_host(const Tensor& to, const void* host) const {
  if (!is_cuda()) {
    std::memcpy(to.data, host, to.bytes());
    return;
  }
  cuda::copy(to.data, host, to.bytes(), cuda::Copy::to_device, stream_);
  synchronize();
}

void Device::copy(const Tensor& to, const Tensor& from) const {
  require(to.bytes() == from.bytes(), "a copy between tensors of different size");
  if (is_cuda())
    cuda::copy(to.data, from.data, to.bytes(), cuda::Copy::on_device, stream_);
  else
    std::memcpy(to.data, from.data, to.bytes());
}

}  // namespace filigree
