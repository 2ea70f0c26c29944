#include <cstring>

#include "kernels/adamw/adamw.h"
#include "kernels/cuda_table.cuh"
#include "kernels/cuda_vector.cuh"

// Bound by memory: 28 bytes an element in fp32 (master, m and v read and written, the gradient read), 30 with bf16
// values. The list of parameters stays in device memory from step to step; what changes every step travels with the
// launch. The three divisions and the root are IEEE operations, about 50 instructions: a third of what the
// multiprocessors can issue in the time that the bytes take.

namespace filigree::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kEach = 4;                // elements a thread takes at once: 16 bytes of each fp32 array
constexpr std::int64_t kPiece = 16384;  // elements a block takes: long beside finding them, short beside the whole

// One parameter, as the launches of all steps see it.
struct Parameter {
  __nv_bfloat16* values;  // null where the values are fp32, the master
  float* master;
  const float* gradient;
  float* m;
  float* v;
  std::int64_t count;
  std::int32_t first_piece;
  std::uint16_t rates;    // which of Rates
  std::uint16_t vectors;  // whether every address suits kEach elements
};

// What the formula needs of the arguments, in fp32. The same for many parameters.
struct Rate {
  float clip, beta1, rest1, beta2, rest2, correction1, correction2, lr, shrink, epsilon;
};
constexpr int kMaxRates = 32;
struct Rates {
  Rate rate[kMaxRates];
};

// ---------------------------------------------------------------------------------------------------------- kernels

struct Element {
  float p, m, v;
};

// One rounding an operation, as on the processor: the compiler must not make FMAs of them.
__device__ __forceinline__ Element updated(const Rate& rate, Element old, float gradient) {
  const float g = __fmul_rn(gradient, rate.clip);
  Element next;
  next.m = __fadd_rn(__fmul_rn(rate.beta1, old.m), __fmul_rn(rate.rest1, g));
  next.v = __fadd_rn(__fmul_rn(rate.beta2, old.v), __fmul_rn(rate.rest2, __fmul_rn(g, g)));
  next.p = __fsub_rn(old.p, __fmul_rn(rate.shrink, old.p));
  const float root = __fadd_rn(__fsqrt_rn(__fdiv_rn(next.v, rate.correction2)), rate.epsilon);
  next.p = __fsub_rn(next.p, __fdiv_rn(__fmul_rn(rate.lr, __fdiv_rn(next.m, rate.correction1)), root));
  return next;
}

__global__ __launch_bounds__(kThreads) void adamw_kernel(const Parameter* __restrict__ parameters, int count,
                                                         const __grid_constant__ Rates rates) {
  const auto piece = static_cast<std::int32_t>(blockIdx.x);
  const Parameter parameter = parameters[entry_of(parameters, count, piece)];
  const Rate rate = rates.rate[parameter.rates];
  float* const master = in_device_memory(parameter.master);
  float* const m = in_device_memory(parameter.m);
  float* const v = in_device_memory(parameter.v);
  const float* const gradient = in_device_memory(parameter.gradient);
  __nv_bfloat16* const values = in_device_memory(parameter.values);
  const std::int64_t begin = (piece - parameter.first_piece) * kPiece;
  const std::int64_t end = min(begin + kPiece, parameter.count);
  const std::int64_t vector_end = parameter.vectors ? begin + (end - begin) / kEach * kEach : begin;
  for (std::int64_t i = begin + threadIdx.x * kEach; i < vector_end; i += kThreads * kEach) {
    Floats<kEach> ps = load<kEach>(master + i), ms = load<kEach>(m + i), vs = load<kEach>(v + i);
    const Floats<kEach> gs = load<kEach>(gradient + i);
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const Element next = updated(rate, {ps.values[j], ms.values[j], vs.values[j]}, gs.values[j]);
      ps.values[j] = next.p;
      ms.values[j] = next.m;
      vs.values[j] = next.v;
    }
    store(master + i, ps);
    store(m + i, ms);
    store(v + i, vs);
    if (values)
      *reinterpret_cast<uint2*>(values + i) =
          make_uint2(two_halves(ps.values[0], ps.values[1]), two_halves(ps.values[2], ps.values[3]));
  }
  for (std::int64_t i = vector_end + threadIdx.x; i < end; i += kThreads) {
    const Element next = updated(rate, {master[i], m[i], v[i]}, gradient[i]);
    master[i] = next.p;
    m[i] = next.m;
    v[i] = next.v;
    if (values) values[i] = __float2bfloat16_rn(next.p);
  }
}

// --------------------------------------------------------------------------------------------------------- launcher

// The number of the arguments' rate among the first `used`, or a new one.
std::uint16_t rate_of(Rates& rates, int& used, const AdamWArgs& args) {
  const Rate rate = {.clip = args.step.clip,
                     .beta1 = args.beta1,
                     .rest1 = 1.0f - args.beta1,
                     .beta2 = args.beta2,
                     .rest2 = 1.0f - args.beta2,
                     .correction1 = args.step.bias_correction1,
                     .correction2 = args.step.bias_correction2,
                     .lr = args.step.lr,
                     .shrink = args.step.lr * args.decay,
                     .epsilon = args.epsilon};
  int index = 0;
  while (index < used && std::memcmp(&rates.rate[index], &rate, sizeof rate) != 0) ++index;
  if (index == used) {
    require(used < kMaxRates, "adamw: more different steps, betas, epsilons and decays than one launch takes");
    rates.rate[used++] = rate;
  }
  return static_cast<std::uint16_t>(index);
}

}  // namespace

void adamw(Device& device, std::span<const AdamWArgs> parameters) {
  Rates rates{};
  int used = 0;
  std::vector<Parameter> list;
  list.reserve(parameters.size());
  std::int64_t pieces = 0;
  for (const AdamWArgs& args : parameters) {
    if (args.count == 0) continue;
    auto* values = args.values.dtype == DType::bf16 ? static_cast<__nv_bfloat16*>(args.values.data) : nullptr;
    list.push_back(
        {.values = values,
         .master = args.master,
         .gradient = args.gradient,
         .m = args.m,
         .v = args.v,
         .count = args.count,
         .first_piece = static_cast<std::int32_t>(pieces),
         .rates = rate_of(rates, used, args),
         .vectors = aligned({args.master, args.gradient, args.m, args.v}) && aligned({values}, sizeof(uint2))});
    pieces += (args.count + kPiece - 1) / kPiece;
  }
  if (list.empty()) return;
  require(pieces <= std::numeric_limits<std::int32_t>::max(), "adamw: more elements than one launch takes");
  const Parameter* on_device = KernelTables::on_device(device, Table::adamw, list);
  adamw_kernel<<<static_cast<unsigned int>(pieces), kThreads, 0, device.stream()>>>(
      on_device, static_cast<int>(list.size()), rates);
  check_launch();
}

}  // namespace filigree::cuda
