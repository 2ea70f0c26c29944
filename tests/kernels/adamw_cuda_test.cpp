#include "kernels/adamw/adamw.h"

#include "kernels/cuda_test.h"

namespace filigree::testing {
namespace {

// One parameter on the processor and on the GPU, there with arrays that begin `shift` elements late.
class Parameter {
 public:
  Parameter(Device& cpu, Device& gpu, DType dtype, std::int64_t count, std::int64_t shift, std::uint32_t stream)
      : dtype_(dtype), count_(count), shift_(shift) {
    for (std::uint32_t array = 0; array < 5; ++array) {
      host_[array] = random_tensor(cpu, array == 4 ? DType::bf16 : DType::f32, {count}, 8 * stream + array, 0.1);
      if (array == 3)
        for (std::int64_t i = 0; i < count; ++i) {
          float& v = host_[3].view().as<float>()[i];
          v = v * v;
        }
      const Tensor& from = host_[array];
      device_[array] = gpu.memory().tensor(Purpose::workspace, from.dtype, {count + shift});
      if (count > 0) gpu.copy_from_host(on_gpu(array), from.data);
    }
    if (count > 2) {  // a parameter that no token has reached
      for (const std::uint32_t array : {1u, 2u, 3u}) {
        host_[array].view().as<float>()[1] = 0.0f;
        gpu.copy_from_host(on_gpu(array), host_[array].view().data);
      }
    }
  }

  AdamWArgs on_cpu(const StepState& step, float decay) const {
    return arguments([&](auto i) { return host(i); }, step, decay);
  }
  AdamWArgs on_gpu(const StepState& step, float decay) const {
    return arguments([&](auto i) { return on_gpu(i); }, step, decay);
  }
  // The arrays that an update writes: master, m, v, and the values where they are bf16.
  std::vector<std::uint32_t> written() const {
    return dtype_ == DType::bf16 ? std::vector<std::uint32_t>{0, 2, 3, 4} : std::vector<std::uint32_t>{0, 2, 3};
  }
  Tensor host(std::uint32_t array) const { return host_[array]; }
  Tensor on_gpu(std::uint32_t array) const { return device_[array].view().slice(shift_, count_); }

 private:
  template <typename Array>
  AdamWArgs arguments(const Array& array, const StepState& step, float decay) const {
    return {.values = dtype_ == DType::bf16 ? array(4u) : array(0u),
            .master = static_cast<float*>(array(0u).data),
            .gradient = static_cast<const float*>(array(1u).data),
            .m = static_cast<float*>(array(2u).data),
            .v = static_cast<float*>(array(3u).data),
            .count = count_,
            .step = step,
            .decay = decay};
  }

  DType dtype_;
  std::int64_t count_, shift_;
  OwnedTensor host_[5], device_[5];  // master, gradient, m, v, bf16 values
};

class AdamWCuda : public CudaTest {
 protected:
  std::vector<Parameter> parameters(const std::vector<std::int64_t>& counts) {
    std::vector<Parameter> made;
    std::uint32_t stream = 0;
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const std::int64_t shift : {0, 1})
        for (const std::int64_t count : counts) made.emplace_back(cpu(), gpu(), dtype, count, shift, ++stream);
    return made;
  }
  // One step of both, each second parameter as an adapter: another step state, no decay.
  void step(const std::vector<Parameter>& list, float correction) {
    const StepState base = {.lr = 3e-3f, .clip = 0.7f, .bias_correction1 = correction, .bias_correction2 = 0.142625f};
    const StepState adapter = {.lr = 1e-3f, .clip = 0.7f, .bias_correction1 = 0.1f, .bias_correction2 = correction};
    std::vector<AdamWArgs> on_cpu, on_gpu;
    for (std::size_t i = 0; i < list.size(); ++i) {
      const StepState& state = i % 2 ? adapter : base;
      on_cpu.push_back(list[i].on_cpu(state, i % 2 ? 0.0f : 0.1f));
      on_gpu.push_back(list[i].on_gpu(state, i % 2 ? 0.0f : 0.1f));
    }
    adamw(cpu(), on_cpu);
    adamw(gpu(), on_gpu);
  }
  void expect_same_state(const std::vector<Parameter>& list) {
    for (std::size_t i = 0; i < list.size(); ++i)
      for (const std::uint32_t array : list[i].written())
        if (list[i].host(array).count() > 0)
          expect_same(list[i].on_gpu(array), list[i].host(array),
                      "parameter " + std::to_string(i) + ", array " + std::to_string(array));
  }
};

TEST_F(AdamWCuda, HasTheProcessorsBitsOverStepsForAllParametersAtOnce) {
  const std::vector<Parameter> list = parameters({1, 3, 0, 1000, 16384, 16385, 70001});
  for (const float correction : {0.1f, 0.19f, 0.271f}) {
    step(list, correction);
    expect_same_state(list);
  }
}

TEST_F(AdamWCuda, FollowsAListThatChanges) {
  std::vector<Parameter> list = parameters({40000, 17});
  step(list, 0.1f);
  const std::int64_t allocations = gpu().memory().allocations();
  step(list, 0.19f);
  std::swap(list[0], list[5]);
  list.pop_back();
  step(list, 0.271f);
  EXPECT_EQ(gpu().memory().allocations(), allocations);
  expect_same_state(list);
  const std::vector<Parameter> longer = parameters({5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16});  // over 32 entries
  step(longer, 0.1f);
  expect_same_state(longer);
}

TEST_F(AdamWCuda, RejectsMoreSettingsThanALaunchTakes) {
  const std::vector<Parameter> list = parameters({1, 2, 3, 4, 5, 6, 7, 8, 9});
  std::vector<AdamWArgs> arguments;
  for (const Parameter& parameter : list)
    arguments.push_back(parameter.on_gpu({.lr = 1e-3f * static_cast<float>(arguments.size())}, 0.0f));
  EXPECT_THROW(adamw(gpu(), arguments), Error);
  arguments.resize(32);
  EXPECT_NO_THROW(adamw(gpu(), arguments));
}

}  // namespace
}  // namespace filigree::testing
