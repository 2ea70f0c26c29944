// Shared by the GPU tests: the same tensors on the processor and on the GPU.
#pragma once

#include <cstring>

#include "kernels/kernel_test.h"

namespace filigree::testing {

// Skips, with the reason, where no GPU can be used.
class CudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = cuda::unusable(); !reason.empty()) GTEST_SKIP() << reason;
    cuda_ = Device::cuda();
  }
  Device& cpu() { return *cpu_; }
  Device& gpu() { return *cuda_; }

  // A copy on the GPU; an empty tensor stays one, of its shape.
  OwnedTensor on_gpu(const Tensor& host) {
    if (host.empty()) return {Buffer(), host.dtype, host.shape};
    OwnedTensor copy = gpu().memory().tensor(Purpose::workspace, host.dtype, host.shape);
    gpu().copy_from_host(copy, host.data);
    return copy;
  }
  OwnedTensor on_cpu(const Tensor& device) {
    OwnedTensor copy = cpu().memory().tensor(Purpose::workspace, device.dtype, device.shape);
    gpu().copy_to_host(copy.view().data, device);
    return copy;
  }
  // A copy one element further than memory is aligned, so that no address suits wide accesses.
  struct Shifted {
    OwnedTensor storage;
    Tensor view;
  };
  Shifted on_gpu_shifted(const Tensor& host) {
    Shifted copy{gpu().memory().tensor(Purpose::workspace, host.dtype, {host.count() + 1}), {}};
    copy.view = copy.storage.view().slice(1, host.count()).reshaped(host.shape);
    gpu().copy_from_host(copy.view, host.data);
    return copy;
  }
  // Bit for bit.
  void expect_same(const Tensor& on_gpu, const Tensor& reference, const std::string& what) {
    ASSERT_EQ(on_gpu.bytes(), reference.bytes()) << what;
    const OwnedTensor copy = on_cpu(on_gpu);
    if (std::memcmp(copy.view().data, reference.data, reference.bytes()) == 0) return;
    EXPECT_EQ(values_of(copy), values_of(reference))
        << what;  // names the elements, unless they differ in signs of zero
    ADD_FAILURE() << what << ": bytes differ";
  }
  // Each element of the GPU's result within the common tolerance of the processor's; both round to the tensor's type.
  void expect_equal(const Tensor& on_gpu, const Tensor& reference, std::int64_t length, double magnitude,
                    const std::string& what) {
    const OwnedTensor copy = on_cpu(on_gpu);
    expect_close(copy, values_of(reference), length, 2.0 * magnitude, what);
  }

 private:
  std::unique_ptr<Device> cpu_ = Device::cpu();
  std::unique_ptr<Device> cuda_;
};

}  // namespace filigree::testing
