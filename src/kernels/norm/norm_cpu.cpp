#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/norm/norm_cpu.cpp"
#include <hwy/foreach_target.h>
// After foreach_target, so that it is included once for each instruction set.
#include <cmath>

#include "core/parallel.h"
#include "kernels/norm/norm.h"
#include "kernels/vector-inl.h"

// Bound by memory: each row is read once from memory and its further passes hit the first-level cache. The variance is
// taken around the mean in a pass of its own, which loses nothing where the mean is large.

HWY_BEFORE_NAMESPACE();
namespace filigree::HWY_NAMESPACE {
namespace {

constexpr std::int64_t kGrain = 8;   // rows a thread takes at least
constexpr std::int64_t kChunk = 64;  // rows whose gain and bias gradients are summed together; fixed, so that sums do
                                     // not depend on the thread count

template <typename T>
void forward_rows(const NormForwardArgs& args) {
  const std::int64_t channels = args.gain.count();  // C
  const float inverse = 1.0f / static_cast<float>(channels);
  const bool layer = args.kind == NormKind::layer;
  const float* gain = args.gain.as<float>();
  const float* bias = args.bias.empty() ? nullptr : args.bias.as<float>();
  float* means = args.mean.empty() ? nullptr : args.mean.as<float>();
  float* rstds = args.rstd.empty() ? nullptr : args.rstd.as<float>();
  parallel_for(args.x.count() / channels, kGrain, [&](std::int64_t begin, std::int64_t end) HWY_ATTR {
    for (std::int64_t t = begin; t < end; ++t) {
      const T* s = args.x.as<T>() + t * channels;
      if (!args.residual.empty()) {
        const T* x = s;
        const T* residual = args.residual.as<T>() + t * channels;
        T* sum = args.sum.as<T>() + t * channels;
        for_vectors(channels, [&](std::int64_t i, auto part) HWY_ATTR {
          store(hn::Add(load(x + i, part), load(residual + i, part)), sum + i, part);
        });
        s = sum;
      } else if (!args.sum.empty() && args.sum.data != args.x.data) {
        T* sum = args.sum.as<T>() + t * channels;
        std::copy(s, s + channels, sum);
      }
      float mean = 0.0f;
      if (layer)
        mean = inverse * sum_vectors(channels, [&](std::int64_t i, auto part) HWY_ATTR { return load(s + i, part); });
      const FloatVector center = splat(mean);
      const float squares = sum_vectors(channels, [&](std::int64_t i, auto part) HWY_ATTR {
        const FloatVector off = hn::Sub(load(s + i, part), center);
        return keep(hn::Mul(off, off), part);
      });
      const float rstd = 1.0f / std::sqrt(squares * inverse + args.epsilon);
      if (means) means[t] = mean;
      if (rstds) rstds[t] = rstd;
      T* y = args.y.as<T>() + t * channels;
      const FloatVector factor = splat(rstd);
      for_vectors(channels, [&](std::int64_t i, auto part) HWY_ATTR {
        const FloatVector normal = hn::Mul(hn::Sub(load(s + i, part), center), factor);
        const FloatVector shift = bias ? load(bias + i, part) : splat(0.0f);
        store(hn::MulAdd(normal, load(gain + i, part), shift), y + i, part);
      });
    }
  });
}

// With n = (s - mean) rstd and g = dy · gain:
//   ds += rstd (g - mean(g) - n mean(g n))    (RMSNorm: without the middle term)
//   dgain += sum over t of dy n               dbias += sum over t of dy
// partial (chunks, 2, C) receives the sums of each chunk of rows.
template <typename T>
void backward_rows(const NormBackwardArgs& args, float* partial) {
  const std::int64_t channels = args.gain.count();  // C
  const std::int64_t rows = args.dy.count() / channels;
  const float inverse = 1.0f / static_cast<float>(channels);
  const bool layer = args.kind == NormKind::layer;
  const float* gain = args.gain.as<float>();
  const float* means = layer ? args.mean.as<float>() : nullptr;
  const float* rstds = args.rstd.as<float>();
  parallel_for((rows + kChunk - 1) / kChunk, 1, [&](std::int64_t first, std::int64_t last) HWY_ATTR {
    for (std::int64_t t = first * kChunk; t < std::min(last * kChunk, rows); ++t) {
      float* dgain = partial + t / kChunk * 2 * channels;  // (C)
      float* dbias = dgain + channels;                     // (C)
      if (t % kChunk == 0) std::fill(dgain, dgain + 2 * channels, 0.0f);
      const T* s = args.sum.as<T>() + t * channels;
      const T* dy = args.dy.as<T>() + t * channels;
      T* ds = args.ds.as<T>() + t * channels;
      const FloatVector mean = splat(layer ? means[t] : 0.0f);
      const FloatVector rstd = splat(rstds[t]);
      FloatVector sum_g = splat(0.0f), sum_gn = splat(0.0f);
      for_vectors(channels, [&](std::int64_t i, auto part) HWY_ATTR {
        const FloatVector gradient = load(dy + i, part);
        const FloatVector normal = hn::Mul(hn::Sub(load(s + i, part), mean), rstd);
        const FloatVector product = keep(hn::Mul(gradient, normal), part);
        const FloatVector weight = load(gain + i, part);
        sum_g = hn::MulAdd(gradient, weight, sum_g);
        sum_gn = hn::MulAdd(product, weight, sum_gn);
        store(hn::Add(load(dgain + i, part), product), dgain + i, part);
        if (layer) store(hn::Add(load(dbias + i, part), gradient), dbias + i, part);
      });
      const FloatTag f;
      const FloatVector mean_g = layer ? hn::Mul(hn::SumOfLanes(f, sum_g), splat(inverse)) : splat(0.0f);
      const FloatVector mean_gn = hn::Mul(hn::SumOfLanes(f, sum_gn), splat(inverse));
      for_vectors(channels, [&](std::int64_t i, auto part) HWY_ATTR {
        const FloatVector normal = hn::Mul(hn::Sub(load(s + i, part), mean), rstd);
        const FloatVector g = hn::Mul(load(dy + i, part), load(gain + i, part));
        const FloatVector rest = hn::NegMulAdd(normal, mean_gn, hn::Sub(g, mean_g));
        store(hn::MulAdd(rest, rstd, load(ds + i, part)), ds + i, part);
      });
    }
  });
}

// Each thread owns channels and adds the chunks in order.
void add_partial_sums(const NormBackwardArgs& args, const float* partial) {
  const std::int64_t channels = args.gain.count();
  const std::int64_t chunks = (args.dy.count() / channels + kChunk - 1) / kChunk;
  float* dgain = args.dgain.as<float>();
  float* dbias = args.dbias.empty() ? nullptr : args.dbias.as<float>();
  parallel_for(channels, 128, [&](std::int64_t begin, std::int64_t end) HWY_ATTR {
    for_vectors(end - begin, [&](std::int64_t offset, auto part) HWY_ATTR {
      const std::int64_t i = begin + offset;
      FloatVector sum_gain = splat(0.0f), sum_bias = splat(0.0f);
      for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
        const float* sums = partial + chunk * 2 * channels;
        sum_gain = hn::Add(sum_gain, load(sums + i, part));
        sum_bias = hn::Add(sum_bias, load(sums + channels + i, part));
      }
      store(hn::Add(load(dgain + i, part), sum_gain), dgain + i, part);
      if (dbias) store(hn::Add(load(dbias + i, part), sum_bias), dbias + i, part);
    });
  });
}

void forward(const NormForwardArgs& args) {
  with_compute_type(args.x.dtype, [&]<typename T>() { forward_rows<T>(args); });
}

void backward(Device& device, const NormBackwardArgs& args) {
  const std::int64_t channels = args.gain.count();
  const std::int64_t chunks = (args.dy.count() / channels + kChunk - 1) / kChunk;
  auto* partial = static_cast<float*>(
      device.scratch(Scratch::kernel, static_cast<std::size_t>(chunks * 2 * channels) * sizeof(float)));
  with_compute_type(args.dy.dtype, [&]<typename T>() { backward_rows<T>(args, partial); });
  add_partial_sums(args, partial);
}

}  // namespace
}  // namespace filigree::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace filigree {

HWY_EXPORT(forward);
HWY_EXPORT(backward);

void norm_forward(Device& device, const NormForwardArgs& args) {
  const std::int64_t channels = args.gain.count();
  require(args.y.shape == args.x.shape && args.x.shape[-1] == channels && args.y.dtype == args.x.dtype,
          "norm_forward: x, y and gain do not fit each other");
  require(args.kind == NormKind::layer || (args.bias.empty() && args.mean.empty()),
          "norm_forward: RMSNorm has no bias and no mean");
  if (args.x.count() == 0) return;
  require(args.residual.empty() || (!args.sum.empty() && args.residual.count() == args.x.count()),
          "norm_forward: a residual of x's shape needs a place for the sum");
  if constexpr (kBuiltWithCuda)
    if (device.is_cuda()) return cuda::norm_forward(device, args);
  HWY_DYNAMIC_DISPATCH(forward)(args);
}

void norm_backward(Device& device, const NormBackwardArgs& args) {
  const std::int64_t channels = args.gain.count();
  require(args.dy.shape == args.sum.shape && args.ds.shape == args.sum.shape && args.dy.shape[-1] == channels &&
              args.dgain.count() == channels,
          "norm_backward: ds, dy, sum and gain do not fit each other");
  if (args.dy.count() == 0) return;
  require(args.kind == NormKind::rms || !args.mean.empty(), "norm_backward: LayerNorm needs the mean of forward");
  if constexpr (kBuiltWithCuda)
    if (device.is_cuda()) return cuda::norm_backward(device, args);
  HWY_DYNAMIC_DISPATCH(backward)(device, args);
}

}  // namespace filigree
#endif  // HWY_ONCE
