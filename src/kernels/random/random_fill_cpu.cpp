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

}  // namespace filigree
