#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/activation/activation_cpu.cpp"
#include <hwy/foreach_target.h>
// After foreach_target, so that it is included once for each instruction set.
#include "core/parallel.h"
#include "kernels/activation/activation.h"
#include "kernels/vector-inl.h"

// gelu is computed as x · logistic(2u) with u = sqrt(2/pi) (x + 0.044715 x³), which equals x/2 (1 + tanh(u)) and loses
// nothing where tanh is near -1. The logistic function has a few ulp of error, and its argument's rounding comes
// multiplied by the argument, as in every formula for it.

HWY_BEFORE_NAMESPACE();
namespace filigree::HWY_NAMESPACE {
namespace {

constexpr std::int64_t kGrain = 4096;  // elements a thread takes at least: about a microsecond
constexpr float kTwoRootTwoOverPi = 1.5957691216f;
constexpr float kCubic = 0.044715f;

HWY_INLINE FloatVector gelu_gate(FloatVector x) {  // logistic(2u); log2(e) is in the constants
  constexpr float kLinear = kTwoRootTwoOverPi * kLog2E;
  return logistic2(hn::Mul(x, hn::MulAdd(hn::Mul(x, x), splat(kLinear * kCubic), splat(kLinear))));
}

HWY_INLINE FloatVector silu_gate(FloatVector x) {
  return logistic2(hn::Mul(x, splat(kLog2E)));
}

HWY_INLINE FloatVector gelu_derivative(FloatVector x) {
  const FloatVector gate = gelu_gate(x);
  // d/dx (x s) = s + x s (1 - s) · 2u'
  const FloatVector slope =
      hn::MulAdd(hn::Mul(x, x), splat(3.0f * kTwoRootTwoOverPi * kCubic), splat(kTwoRootTwoOverPi));
  const FloatVector product = hn::Mul(x, gate);
  const FloatVector bend = hn::NegMulAdd(product, gate, product);
  return hn::MulAdd(bend, slope, gate);
}

template <typename T, typename Function>
void map(const Tensor& y, const Tensor& x, const Function& function) {
  T* out = y.as<T>();
  const T* in = x.as<T>();
  parallel_for(x.count(), kGrain, [&](std::int64_t begin, std::int64_t end) HWY_ATTR {
    for_vectors(end - begin, [&](std::int64_t i, auto part)
                                 HWY_ATTR { store(function(load(in + begin + i, part)), out + begin + i, part); });
  });
}

template <typename T, typename Derivative>
void map_backward(const ActivationBackwardArgs& args, const Derivative& derivative) {
  T* dx = args.dx.as<T>();
  const T* dy = args.dy.as<T>();
  const T* x = args.x.as<T>();
  parallel_for(args.x.count(), kGrain, [&](std::int64_t begin, std::int64_t end) HWY_ATTR {
    for_vectors(end - begin, [&](std::int64_t i, auto part) HWY_ATTR {
      const std::int64_t at = begin + i;
      store(hn::Mul(load(dy + at, part), derivative(load(x + at, part))), dx + at, part);
    });
  });
}

template <typename T>
void swiglu_forward(const Tensor& y_tensor, const Tensor& x_tensor) {
  T* y = y_tensor.as<T>();
  const T* x = x_tensor.as<T>();
  const std::int64_t width = y_tensor.shape[-1];  // F
  const std::int64_t rows = y_tensor.count() / width;
  parallel_for(rows, (kGrain + width - 1) / width, [&](std::int64_t begin, std::int64_t end) HWY_ATTR {
    for (std::int64_t row = begin; row < end; ++row) {
      const T* gates = x + row * 2 * width;  // (F)
      const T* ups = gates + width;          // (F)
      for_vectors(width, [&](std::int64_t i, auto part) HWY_ATTR {
        const FloatVector gate = load(gates + i, part);
        store(hn::Mul(hn::Mul(gate, silu_gate(gate)), load(ups + i, part)), y + row * width + i, part);
      });
    }
  });
}

template <typename T>
void swiglu_backward(const ActivationBackwardArgs& args) {
  T* dx = args.dx.as<T>();
  const T* dy = args.dy.as<T>();
  const T* x = args.x.as<T>();
  const std::int64_t width = args.dy.shape[-1];  // F
  const std::int64_t rows = args.dy.count() / width;
  parallel_for(rows, (kGrain + width - 1) / width, [&](std::int64_t begin, std::int64_t end) HWY_ATTR {
    for (std::int64_t row = begin; row < end; ++row) {
      const T* gates = x + row * 2 * width;
      T* dgates = dx + row * 2 * width;
      for_vectors(width, [&](std::int64_t i, auto part) HWY_ATTR {
        const FloatVector gate = load(gates + i, part);
        const FloatVector up = load(gates + width + i, part);
        const FloatVector gradient = load(dy + row * width + i, part);
        const FloatVector open = silu_gate(gate);
        const FloatVector silu = hn::Mul(gate, open);
        // d/dg (g s) = s + g s (1 - s)
        const FloatVector slope = hn::MulAdd(silu, hn::Sub(splat(1.0f), open), open);
        store(hn::Mul(hn::Mul(gradient, up), slope), dgates + i, part);
        store(hn::Mul(gradient, silu), dgates + width + i, part);
      });
    }
  });
}

void forward(const ActivationForwardArgs& args) {
  with_compute_type(args.x.dtype, [&]<typename T>() {
    switch (args.kind) {
      case Activation::gelu:
        map<T>(args.y, args.x, [](FloatVector x) HWY_ATTR { return hn::Mul(x, gelu_gate(x)); });
        break;
      case Activation::relu:  // max(0, NaN) would be 0 on some processors: select instead
        map<T>(args.y, args.x, [](FloatVector x) HWY_ATTR { return hn::IfThenZeroElse(hn::Lt(x, splat(0.0f)), x); });
        break;
      case Activation::swiglu:
        swiglu_forward<T>(args.y, args.x);
        break;
    }
  });
}

void backward(const ActivationBackwardArgs& args) {
  with_compute_type(args.x.dtype, [&]<typename T>() {
    switch (args.kind) {
      case Activation::gelu:
        map_backward<T>(args, [](FloatVector x) HWY_ATTR { return gelu_derivative(x); });
        break;
      case Activation::relu:
        map_backward<T>(args,
                        [](FloatVector x) HWY_ATTR { return hn::IfThenElseZero(hn::Gt(x, splat(0.0f)), splat(1.0f)); });
        break;
      case Activation::swiglu:
        swiglu_backward<T>(args);
        break;
    }
  });
}

}  // namespace
}  // namespace filigree::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace filigree {

HWY_EXPORT(forward);
HWY_EXPORT(backward);

void activation_forward(Device& device, const ActivationForwardArgs& args) {
  const std::int64_t inputs = args.kind == Activation::swiglu ? 2 : 1;
  require(args.x.count() == inputs * args.y.count() && args.x.dtype == args.y.dtype,
          "activation_forward: x and y do not fit each other");
  if (args.y.count() == 0) return;
  if constexpr (kBuiltWithCuda)
    if (device.is_cuda()) return cuda::activation_forward(device, args);
  HWY_DYNAMIC_DISPATCH(forward)(args);
}

void activation_backward(Device& device, const ActivationBackwardArgs& args) {
  const std::int64_t inputs = args.kind == Activation::swiglu ? 2 : 1;
  require(args.x.count() == inputs * args.dy.count() && args.dx.count() == args.x.count() &&
              args.x.dtype == args.dy.dtype && args.dx.dtype == args.x.dtype,
          "activation_backward: x, dy and dx do not fit each other");
  if (args.dy.count() == 0) return;
  if constexpr (kBuiltWithCuda)
    if (device.is_cuda()) return cuda::activation_backward(device, args);
  HWY_DYNAMIC_DISPATCH(backward)(args);
}

}  // namespace filigree
#endif  // HWY_ONCE
