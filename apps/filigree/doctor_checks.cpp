#include "doctor_checks.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>

#include "core/device.h"
#include "kernels/library_versions.h"
#include "report/format.h"
#include "version.h"

namespace filigree {
namespace {

namespace fs = std::filesystem;

std::optional<fs::path> on_path(const std::string& program) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');)
    if (const fs::path file = fs::path(folder) / program; ::access(file.c_str(), X_OK) == 0) return file;
  return std::nullopt;
}

std::string first_line(const fs::path& file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  return line;
}

struct LibraryClose {
  void operator()(void* handle) const { ::dlclose(handle); }
};

// Where the loader finds a shared library; "" where it does not.
std::string library_path(const char* name) {
  const std::unique_ptr<void, LibraryClose> library(::dlopen(name, RTLD_LAZY | RTLD_LOCAL));
  if (!library) return "";
  std::ifstream maps("/proc/self/maps");  // the line of its mapping ends in the path
  for (std::string line; std::getline(maps, line);)
    if (const std::size_t at = line.find('/'); at != std::string::npos && line.find(name, at) != std::string::npos)
      return line.substr(at);
  return name;
}

DoctorCheck library(const char* name, const char* file, const char* advice) {
  const std::string path = library_path(file);
  return {.name = name, .found = !path.empty(), .needed = false, .value = path, .advice = advice};
}

std::string joined(const std::vector<std::pair<std::string, std::string>>& versions) {
  std::string text;
  for (const auto& [library, version] : versions) text += (text.empty() ? "" : ", ") + library + " " + version;
  return text;
}

void add_gpu(std::vector<DoctorCheck>& checks) {
  const std::string driver = first_line("/proc/driver/nvidia/version");
  std::error_code error;
  const bool chip = !driver.empty() || fs::exists("/dev/nvidiactl", error);
  checks.push_back({.name = "NVIDIA driver",
                    .found = chip,
                    .needed = false,
                    .value = !chip            ? ""
                             : driver.empty() ? "present"
                                              : driver,
                    .advice = "only for an NVIDIA GPU: install the driver (580 or newer) of the machine's system; in a "
                              "container start it with the GPUs passed in (docker run --gpus all)"});
  if (!kBuiltWithCuda) {
    checks.push_back({.name = "GPU",
                      .found = false,
                      .needed = chip,
                      .value = "",
                      .advice =
                          "this build computes on the CPU alone; where nvcc of CUDA 13 is: cmake --preset cuda && "
                          "cmake --build --preset cuda --target filigree"});
  } else if (const std::string reason = cuda::unusable(); !reason.empty()) {
    checks.push_back({.name = "GPU", .found = false, .needed = true, .value = "", .advice = reason});
  } else {
    const auto device = Device::cuda();
    const int capability = device->gpu().capability;
    const bool served = std::string(build::kCudaArchitectures).find(std::to_string(capability)) != std::string::npos;
    checks.push_back({.name = "GPU",
                      .found = served,
                      .needed = true,
                      .value = device->description() + "; " + joined(library_versions(*device)),
                      .advice = "it has compute capability " + std::to_string(capability) + ", this build is for " +
                                std::string(build::kCudaArchitectures) +
                                ": build with -DFILIGREE_CUDA_ARCHITECTURES=" + std::to_string(capability)});
  }
  const auto nvcc = on_path("nvcc");
  checks.push_back({.name = "nvcc",
                    .found = nvcc.has_value(),
                    .needed = false,
                    .value = nvcc ? nvcc->string() : "",
                    .advice = "only to build for a GPU: CUDA 13's toolkit, its bin folder on PATH"});
  checks.push_back(library("cuSPARSELt", "libcusparseLt.so.0",
                           "only on a GPU: 2:4 products; scripts/setup fetches it into .deps/ where nvcc is found"));
  checks.push_back(
      library("cuDNN", "libcudnn.so.9", "only on a GPU: attention; part of CUDA's packages (libcudnn9-cuda-13)"));
  checks.push_back(library("NCCL", "libnccl.so.2", "only for several GPUs: libnccl2 of CUDA's packages"));
}

}  // namespace

std::vector<DoctorCheck> doctor_checks() {
  std::vector<DoctorCheck> checks;
  std::string built = std::string(build::kVersion) + " (" + std::string(build::kCommit) + ", " +
                      std::string(build::kBuildType) + ", " + std::string(build::kCompiler);
  if (kBuiltWithCuda)
    built += ", " + std::string(build::kCudaCompiler) + " for " + std::string(build::kCudaArchitectures);
  const bool optimized = build::kBuildType == "Release" || build::kBuildType == "RelWithDebInfo";
  checks.push_back({.name = "filigree",
                    .found = optimized,
                    .needed = true,
                    .value = built + ")",
                    .advice = "a build of type " + std::string(build::kBuildType) + " is slow: cmake --preset cpu"});
  const auto cpu = Device::cpu();
  checks.push_back({.name = "processor", .found = true, .needed = true, .value = cpu->description(), .advice = ""});
  const long pages = ::sysconf(_SC_PHYS_PAGES), page = ::sysconf(_SC_PAGE_SIZE);
  checks.push_back({.name = "memory",
                    .found = pages > 0,
                    .needed = false,
                    .value = format_bytes(static_cast<double>(pages) * static_cast<double>(page)),
                    .advice = "its size is not known"});
  std::error_code error;
  const fs::space_info space = fs::space(fs::current_path(error), error);
  constexpr std::uintmax_t kLittleDisk = 2ull << 30;
  checks.push_back(
      {.name = "disk",
       .found = !error && space.available >= kLittleDisk,
       .needed = false,
       .value = error ? "" : format_bytes(static_cast<double>(space.available)) + " free here",
       .advice = "less than 2 GiB free: a checkpoint holds the weights and twice as much of the optimizer"});
  checks.push_back(
      {.name = "libraries", .found = true, .needed = true, .value = joined(library_versions(*cpu)), .advice = ""});
  checks.push_back(
      library("MPI", "libmpi.so.40", "only for several processes: apt-get install openmpi-bin libopenmpi-dev"));
  add_gpu(checks);
  return checks;
}

}  // namespace filigree
