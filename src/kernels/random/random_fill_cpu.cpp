#include "core/parallel.h"
#include "kernels/random/random_fill.h"

namespace filigree {

void fill_normal(Device& device, const Tensor& y, const Random& random, float deviation) {
  require(y.dtype == DType::f32, "fill_normal: y is fp32");
  if (y.count() == 0) return;
  if constexpr (kBuiltWithCuda)
    if (device.is_cuda()) return cuda::fill_normal(device, y, random, deviation);
  auto* data = y.as<float>();
  parallel_for(y.count(), 4096, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) data[i] = deviation * random.normal(static_cast<std::uint64_t>(i));
  });
}

void fill_uniform(Device& device, const Tensor& y, const Random& random) {
  require(y.dtype == DType::f32, "fill_uniform: y is fp32");
  if (y.count() == 0) return;
  if constexpr (kBuiltWithCuda)
    if (device.is_cuda()) return cuda::fill_uniform(device, y, random);
  auto* data = y.as<float>();
  parallel_for(y.count(), 4096, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; i += 4) {  // begin is a multiple of 4096
      const auto words = random.words(static_cast<std::uint64_t>(i / 4));
      for (std::int64_t j = i; j < std::min(end, i + 4); ++j)
        data[j] = static_cast<float>(words[static_cast<std::size_t>(j - i)] >> 8) * 0x1p-24f;
    }
  });
}

}  // namespace filigree
